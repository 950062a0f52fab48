#include "actors/block_giver.hpp"

#include <optional>
#include <system_error>
#include <utility>

#include "actors/block_wire.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

constexpr Duration k_hand_over = std::chrono::milliseconds(limits::hand_over_ms);

}  // namespace

/// What an engine answers.
class BlockGiver::Reading {
 public:
  using Blocks = std::vector<model::CachedBlock>;

  explicit Reading(LineThreads& threads) : changed_(threads.condition()) {}
  /// Nothing: the engine has stopped. The first call counts.
  void end(std::optional<Blocks> found) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_over_, true)) found_ = std::move(found);
    changed_->notify();
  }
  /// Whether it has ended.
  bool wait(Duration most) {
    std::unique_lock lock(mutex_);
    if (!is_over_) changed_->wait_for(lock, most);
    return is_over_;
  }
  /// Once it has ended.
  std::optional<Blocks> take() { return std::move(found_); }

 private:
  std::mutex mutex_;
  const std::unique_ptr<LineThreads::Condition> changed_;
  bool is_over_ = false;
  std::optional<Blocks> found_;
};

BlockGiver::BlockGiver(std::shared_ptr<EnginePort> engine, PeerLines lines,
                       std::shared_ptr<spdlog::logger> log)
    : engine_(std::move(engine)), lines_(std::move(lines)), log_(std::move(log)) {}

BlockGiver::~BlockGiver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& line : all_) {
      if (line->link) line->link->close();
      if (line->reading) line->reading->end(std::nullopt);
    }
  }
  for (const auto& line : all_) line->thread = nullptr;
}

void BlockGiver::serve(std::string gate, LineName line) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const std::unique_ptr<Line>& it) { return it->ended.load(); });
  if (!lines_.dial || stopping_ || all_.size() >= limits::peer_lines_max) return;
  all_.reserve(all_.size() + 1);  // whose thread runs is in it, whatever happens
  auto begun = std::make_unique<Line>();
  try {
    begun->thread =
        lines_.threads->start([this, &it = *begun, gate = std::move(gate), line = std::move(line)] {
          ++open_;
          run(it, gate, line);
          --open_;
          it.ended = true;
        });
  } catch (const std::system_error& error) {
    return log_->warn("no thread for a line: {}", error.what());
  }
  all_.push_back(std::move(begun));
}

void BlockGiver::run(Line& line, const std::string& gate, const LineName& name) {
  auto link = lines_.dial(gate, name);
  if (!link) {
    log_->warn("no line for blocks: {}", link.error().message);
    return;
  }
  if (!take(line, std::move(*link))) return;
  answer(line);
  line.link->close();
}

bool BlockGiver::take(Line& line, std::shared_ptr<link::TensorLink> link) {
  const std::lock_guard lock(mutex_);
  if (!stopping_) line.link = std::move(link);
  return !stopping_;
}

bool BlockGiver::answer_nccl(Line& line, const link::Message& offer) {
  auto moved = link::answer_nccl(line.link, offer, lines_.nccl);
  if (!moved) {
    log_->warn("a line for blocks: {}", moved.error().message);
    return false;
  }
  log_->info("a line for blocks goes over {}",
             moved->why_not.empty() ? "NCCL" : "TCP: " + moved->why_not);
  return take(line, std::move(moved->link));
}

void BlockGiver::answer(Line& line) {
  for (bool is_first = true;; is_first = false) {
    const auto asked = line.link->receive(0, lines_.clock->now() + k_hand_over);
    if (!asked) return;
    if (is_first && link::is_nccl_offer(*asked)) {
      if (!answer_nccl(line, *asked)) return;
      continue;
    }
    if (asked->tag != k_query_tag) return;
    auto query = decode_query(asked->bytes.view());
    if (!query || !give(line, std::move(*query))) return;
  }
}

std::shared_ptr<BlockGiver::Reading> BlockGiver::begin_reading(Line& line) {
  const std::lock_guard lock(mutex_);
  line.reading = stopping_ ? nullptr : std::make_shared<Reading>(*lines_.threads);
  return line.reading;
}

/// False: the line is over.
bool BlockGiver::give(Line& line, model::CachedQuery query) {
  link::TensorLink& link = *line.link;
  while (true) {
    const std::shared_ptr<Reading> reading = begin_reading(line);
    if (!reading) return false;
    // An engine that stops drops the call.
    std::shared_ptr<void> dropped(nullptr, [reading](void*) { reading->end(std::nullopt); });
    engine_->read_cached(
        query, [reading, dropped](Reading::Blocks found) { reading->end(std::move(found)); });
    dropped = nullptr;
    const TimePoint end = lines_.clock->now() + k_hand_over;
    while (!reading->wait(lines_.patience / 2)) {
      const TimePoint now = lines_.clock->now();
      if (now >= end || !link.send(0, {k_wait_tag, {}}, now + lines_.patience)) return false;
    }
    const std::optional<Reading::Blocks> found = reading->take();
    if (!found) return false;  // the engine has stopped
    for (const model::CachedBlock& block : *found) {
      link::Message message{query.first++, link::Bytes(encode(block))};
      if (!link.send(0, std::move(message), lines_.clock->now() + lines_.patience)) return false;
      ++given_;
    }
    if (found->empty()) break;
    query.before = found->back().id;
  }
  return link.send(0, {k_end_tag, {}}, lines_.clock->now() + lines_.patience).ok();
}

}  // namespace outrider::actors
