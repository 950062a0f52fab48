#include <unistd.h>

#include <cstdlib>

#include "tests/kvstore/kv_crash.hpp"

namespace outrider::kvstore::crash {
namespace {

using namespace testing_support;  // NOLINT: the folder's own helpers

void report(int fd, const Event& event) {
  // Below PIPE_BUF: whole or not at all.
  if (::write(fd, &event, sizeof(event)) != sizeof(event)) _exit(3);
}

void report(int fd, Event::Kind kind, std::span<const BlockId> ids) {
  for (const BlockId& id : ids) report(fd, {kind, 0, id});
}

void step(ColdStore& store, Random& random, const WriterOptions& options, uint64_t chain) {
  const auto ids = [&](uint64_t of) { return chain_ids(of, chain_length(of)); };
  const uint64_t earlier = chain == 0 ? 0 : random.next_u64() % chain;
  PutOptions put;
  put.tenant = random.chance(0.3f) ? "a" : "b";
  put.pin = !options.roomy && random.chance(0.15f);
  store.put(chain_blocks(chain, chain_length(chain), block_bytes(chain)), put);
  store.touch(ids(earlier));
  if (random.chance(0.3f))
    load(store, chain_request(earlier, chain_length(earlier), block_bytes(earlier)));
  if (random.chance(0.1f)) pin(store, ids(earlier));
  if (random.chance(0.1f)) unpin(store, ids(earlier));
  if (!options.roomy && random.chance(0.1f)) store.drop(ids(earlier));
  if (random.chance(0.3f)) store.drain();
}

}  // namespace

ColdStoreOptions store_options(const std::string& directory, bool roomy) {
  ColdStoreOptions options = small_options(directory);
  options.cap_bytes = roomy ? uint64_t{4} << 30 : uint64_t{6} << 20;
  options.flush_age_ms = 5;
  if (!roomy) options.quota_bytes["a"] = uint64_t{1} << 20;
  return options;
}

void run_writer(const WriterOptions& options) {
  const SteadyClock clock;
  StoreEvents events;
  const int fd = options.events_fd;
  events.published = [fd](std::span<const BlockId> ids) {
    report(fd, Event::Kind::published, ids);
  };
  events.removed = [fd](std::span<const BlockId> ids) { report(fd, Event::Kind::removed, ids); };
  ColdStore store(store_options(options.directory, options.roomy), {clock}, events);
  Random random(options.seed);
  store.drain();
  report(fd, {Event::Kind::opened, 0, {}});
  for (uint64_t chain = options.first_chain;; ++chain) {
    report(fd, {Event::Kind::chain, chain, {}});
    step(store, random, options, chain);
    // Now and then it closes in order, and the kill may come while it does.
    if (random.chance(0.02f)) {
      store.close();
      std::_Exit(0);
    }
  }
}

}  // namespace outrider::kvstore::crash
