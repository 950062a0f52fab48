// Kills a writing process at random points and checks what it left: tests/kvstore/README.md.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "kvstore/inspect.hpp"
#include "tests/kvstore/kv_crash.hpp"

namespace outrider::kvstore::crash {
namespace {

using namespace testing_support;  // NOLINT: the folder's own helpers

struct Totals {
  uint64_t kills = 0, ends = 0,
           unopened = 0;  ///< points; those where the writer had ended; or not opened
  uint64_t opens = 0, records = 0, announced = 0;
  uint64_t wrong = 0, failed_opens = 0, lost = 0, corrupt = 0, dangling = 0;
};

struct Writer {
  pid_t pid = -1;
  int events = -1;
};

Writer start(const WriterOptions& options) {
  int ends[2];
  OUTRIDER_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const std::string seed = std::to_string(options.seed),
                    first = std::to_string(options.first_chain), fd = "3";
  const pid_t pid = fork();
  OUTRIDER_CHECK(pid >= 0);
  if (pid == 0) {
    if (dup2(ends[1], 3) != 3) _exit(2);
    fcntl(3, F_SETFD, 0);
    execl("/proc/self/exe", "kv_crash", "--writer", options.directory.c_str(), "--seed",
          seed.c_str(), "--first", first.c_str(), options.roomy ? "--roomy" : "--tight",
          static_cast<char*>(nullptr));
    _exit(2);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

/// One directory through several kills.
class Victim {
 public:
  Victim(std::string directory, bool roomy) : directory_(std::move(directory)), roomy_(roomy) {}

  void kill_once(uint64_t seed, Totals& totals) {
    Random random(seed);
    Writer writer = start({directory_, seed, next_chain_, roomy_, 3});
    const uint32_t wanted = random.below(4) == 0 ? 0 : random.below(200);
    const int pause_us = static_cast<int>(random.below(3000));
    bool alive = true, opened = false;
    for (uint32_t seen = 0; alive && seen < wanted; ++seen) alive = take(writer, opened);
    if (alive) {
      const timespec pause{0, pause_us * 1000L};
      pollfd none{-1, 0, 0};
      ppoll(&none, 1, &pause, nullptr);
    }
    ::kill(writer.pid, SIGKILL);
    int status = 0;
    waitpid(writer.pid, &status, 0);
    // A writer may only be killed, or end in order: an abort is a failure.
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) ++totals.failed_opens;
    while (take(writer, opened)) {
    }
    close(writer.events);
    ++(killed ? totals.kills : totals.ends);
    totals.unopened += opened ? 0 : 1;
  }

  void verify(Totals& totals) {
    {
      const SteadyClock clock;
      ColdStore store(store_options(directory_, roomy_), {clock});
      store.drain();
      const ColdStats stats = store.stats();
      const bool fine = stats.outage == Outage::none && stats.counters.quarantined == 0 &&
                        stats.counters.salvaged == 0 && stats.counters.broken_rows == 0;
      totals.failed_opens += fine ? 0 : 1;
      if (!fine) std::printf("open: %s\n", stats.outage_text.c_str());
      ++totals.opens;
      for (uint64_t chain = 0; chain < next_chain_; ++chain) check_chain(store, chain, totals);
      totals.announced += published_.size();
    }
    const auto report = inspect(directory_, {.verify = true});
    totals.failed_opens += report ? 0 : 1;
    if (!report) return;
    totals.corrupt += report->corrupt_records;
    totals.dangling += report->missing_records + report->orphans + report->broken_rows;
  }

 private:
  std::string directory_;
  bool roomy_;
  uint64_t next_chain_ = 0;
  std::set<BlockId> published_;

  /// The next event; false at the end of the pipe.
  bool take(const Writer& writer, bool& opened) {
    Event event;
    const ssize_t got = ::read(writer.events, &event, sizeof(event));
    if (got != sizeof(event)) return false;
    if (event.kind == Event::Kind::opened) opened = true;
    if (event.kind == Event::Kind::chain) next_chain_ = event.chain + 1;
    if (event.kind == Event::Kind::published) published_.insert(event.id);
    if (event.kind == Event::Kind::removed) published_.erase(event.id);
    return true;
  }

  void check_chain(ColdStore& store, uint64_t chain, Totals& totals) {
    const uint32_t blocks = chain_length(chain);
    for (uint32_t i = 0; i < blocks; ++i) {  // each by itself: a gap hides what comes after it
      const Block expected = make_block(chain, i, block_bytes(chain));
      LoadRequest request;
      request.ns = expected.ns;
      request.chain.push_back({expected.id, expected.tokens});
      const LoadOutcome out = load(store, std::move(request));
      if (!out.blocks.empty()) {
        ++totals.records;
        if (!same_content(out.blocks[0].record, expected)) ++totals.wrong;
      } else if (out.summary.stopped == Miss::corrupt) {
        ++totals.corrupt;
      } else if (roomy_ && published_.contains(expected.id)) {
        ++totals.lost;
      }
    }
  }
};

int run(uint32_t points, uint64_t seed, uint32_t kills_a_directory) {
  Totals totals;
  std::unique_ptr<TemporaryDirectory> directories[2];
  std::unique_ptr<Victim> victims[2];
  for (uint32_t point = 0; point < points; ++point) {
    const uint32_t side = point % 2;
    if (point / 2 % kills_a_directory == 0) {
      directories[side] = std::make_unique<TemporaryDirectory>();
      victims[side] = std::make_unique<Victim>(directories[side]->path(), side == 1);
    }
    const Totals before = totals;
    victims[side]->kill_once(seed * 1'000'003 + point, totals);
    victims[side]->verify(totals);
    if (totals.wrong != before.wrong || totals.failed_opens != before.failed_opens ||
        totals.lost != before.lost || totals.corrupt != before.corrupt ||
        totals.dangling != before.dangling) {
      std::printf("FAILED at seed %llu, point %u (%s)\n", static_cast<unsigned long long>(seed),
                  point, side == 1 ? "roomy" : "tight");
    }
  }
  const auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "%u points: %llu kills (%llu before the store was open), %llu orderly ends\n"
      "%llu opens, %llu failed; %llu records checked, %llu wrong, %llu corrupt; %llu rows without "
      "a "
      "record or the reverse; %llu announced blocks, %llu lost\n",
      points, n(totals.kills), n(totals.unopened), n(totals.ends), n(totals.opens),
      n(totals.failed_opens), n(totals.records), n(totals.wrong), n(totals.corrupt),
      n(totals.dangling), n(totals.announced), n(totals.lost));
  const bool good =
      totals.wrong + totals.failed_opens + totals.lost + totals.corrupt + totals.dangling == 0;
  return good && totals.records > 0 ? 0 : 1;
}

}  // namespace
}  // namespace outrider::kvstore::crash

int main(int argc, char** argv) {
  namespace crash = outrider::kvstore::crash;
  uint32_t points = 40, kills = 5;
  uint64_t seed = 1;
  crash::WriterOptions writer;
  bool tight = false;
  CLI::App app("Kills a writer of the KV store at random points");
  app.add_option("--points", points, "kills");
  app.add_option("--kills", kills, "of one directory before it is a new one")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "of everything random");
  app.add_option("--writer", writer.directory, "be the writer of this directory");
  app.add_option("--first", writer.first_chain, "of the writer: its first chain");
  app.add_flag("--roomy", writer.roomy, "of the writer: nothing leaves");
  app.add_flag("--tight", tight, "of the writer: the opposite");
  CLI11_PARSE(app, argc, argv);
  if (writer.directory.empty()) return crash::run(points, seed, kills);
  writer.seed = seed;
  writer.events_fd = 3;
  crash::run_writer(writer);
}
