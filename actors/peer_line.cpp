#include "actors/peer_line.hpp"

#include <algorithm>
#include <utility>

#include "actors/block_wire.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

constexpr Duration k_hand_over = std::chrono::milliseconds(limits::hand_over_ms);
/// How much the last use says of the next.
constexpr double k_line_speed_weight = 0.5;
/// What comes in less lay in buffers, and says nothing.
constexpr double k_measured_s = 0.01;
/// Blocks after which a line that is too slow for the rest is given up.
constexpr uint32_t k_judged_after = 4;
/// A line that was too slow is tried again after so long.
constexpr Duration k_try_again = std::chrono::seconds(10);
/// To find each other.
constexpr double k_first_s = 0.01;
/// To agree on NCCL.
constexpr double k_nccl_s = 1;

std::vector<int32_t> tokens_of(const model::TierLoad& load) {
  std::vector<int32_t> tokens = load.peer->before;
  for (const model::TierLoad::Wanted& block : load.blocks) {
    tokens.insert(tokens.end(), block.tokens.begin(), block.tokens.end());
  }
  return tokens;
}

bool is_cancelled(const model::TierLoad& load) {
  return load.cancelled && load.cancelled->load();
}

uint64_t bytes_of(const model::TierLoad& load) {
  return load.blocks.size() * load.block_bytes;
}

}  // namespace

void LineSpeed::observe(double bytes_per_s, TimePoint now) {
  const std::lock_guard lock(mutex_);
  bytes_per_s_ += k_line_speed_weight * (bytes_per_s - bytes_per_s_);
  used_ = now;
}

bool LineSpeed::promises(double bytes, double seconds, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (bytes <= seconds * bytes_per_s_) return true;
  if (now - used_ < k_try_again || bytes > seconds * k_until_one_was_used) return false;
  used_ = now;
  return true;
}

PeerLine::PeerLine(Setup setup)
    : setup_(std::move(setup)), wake_(setup_.lines.threads->condition()) {
  need();
  thread_ = setup_.lines.threads->start([this] { run(); });
}

PeerLine::~PeerLine() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    if (link_) link_->close();
  }
  wake_->notify();
  thread_ = nullptr;
}

void PeerLine::need() {
  const std::lock_guard lock(mutex_);
  ++needed_by_;
  needed_since_ = setup_.lines.clock->now();
}

void PeerLine::through() {
  const std::lock_guard lock(mutex_);
  if (needed_by_ > 0 && --needed_by_ == 0) wake_->notify();
}

bool PeerLine::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

bool PeerLine::has_failed() const {
  const std::lock_guard lock(mutex_);
  return has_failed_;
}

bool PeerLine::load(model::TierLoad& load, model::TierHandlers& handlers) {
  const std::lock_guard lock(mutex_);
  if (is_over_ || !is_needed()) return false;
  const double bytes = static_cast<double>(waiting_bytes_ + bytes_of(load));
  const double to_agree_s = setup_.lines.nccl.nccl && !has_agreed_ ? k_nccl_s : 0;
  const TimePoint now = setup_.lines.clock->now();
  if (load.recompute) {
    const double seconds = to_seconds(*load.recompute) - k_first_s - to_agree_s;
    if (!setup_.speed->promises(bytes, seconds, now)) return false;
  }
  waiting_bytes_ += bytes_of(load);
  const TimePoint by = now + load.timeout.value_or(k_hand_over);
  jobs_.push_back({std::move(load), std::move(handlers), by});
  wake_->notify();
  return true;
}

bool PeerLine::is_needed() const {
  return needed_by_ > 0 && setup_.lines.clock->now() - needed_since_ < k_hand_over;
}

void PeerLine::run() {
  bool is_good = connect();
  std::unique_lock lock(mutex_);
  while (is_good && !stops_) {
    if (!jobs_.empty()) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      is_good = fetch(std::move(job));
      lock.lock();
    } else if (is_needed()) {
      wake_->wait_for(lock, setup_.lines.patience);
    } else {
      break;
    }
  }
  is_over_ = true;
  has_failed_ = !is_good;
  link_ = nullptr;
  std::deque<Job> left = std::exchange(jobs_, {});
  lock.unlock();
  for (Job& job : left) setup_.below(std::move(job.load), std::move(job.handlers));
}

bool PeerLine::connect() {
  const LineName name = setup_.lines.new_name();
  setup_.tell(name);
  auto link = setup_.lines.dial(setup_.gate, name);
  if (!link) {
    setup_.log->warn("no line to a worker that leaves: {}", link.error().message);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    link_ = std::move(*link);
    if (stops_) link_->close();
  }
  return !setup_.lines.nccl.nccl || offer_nccl();
}

bool PeerLine::offer_nccl() {
  auto moved = link::offer_nccl(link_, setup_.lines.nccl);
  if (!moved) {
    setup_.log->warn("a line to a worker that leaves: {}", moved.error().message);
    return false;
  }
  setup_.log->info("a line to a worker that leaves goes over {}",
                   moved->why_not.empty() ? "NCCL" : "TCP: " + moved->why_not);
  const std::lock_guard lock(mutex_);
  link_ = std::move(moved->link);
  has_agreed_ = true;
  if (stops_) link_->close();
  return true;
}

bool PeerLine::fetch(Job job) {
  const uint64_t bytes = bytes_of(job.load);
  uint32_t got = 0;
  End end = End::whole;
  if (!is_cancelled(job.load) && setup_.lines.clock->now() < job.by) {
    end = link_ || connect() ? take(job, got) : End::broken;
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_bytes_ -= bytes;
    // More may be on its way than is wanted: the next request has a line of its own.
    if (end != End::whole) {
      link_ = nullptr;
      has_agreed_ = false;
    }
  }
  if (got > 0) {
    setup_.log->debug("took {} of {} blocks from the worker before", got, job.load.blocks.size());
  }
  if (got == job.load.blocks.size()) {
    job.handlers.done();
  } else {
    job.load.blocks.erase(job.load.blocks.begin(), job.load.blocks.begin() + got);
    setup_.below(std::move(job.load), std::move(job.handlers));
  }
  return end != End::broken;
}

/// Blocks that come; `got` of them did.
PeerLine::End PeerLine::take(const Job& job, uint32_t& got) {
  const model::TierLoad& load = job.load;
  const Clock& clock = *setup_.lines.clock;
  model::CachedQuery query{.kv_namespace = load.kv_namespace,
                           .tenant = load.peer->tenant,
                           .cache_salt = load.peer->cache_salt,
                           .tokens = tokens_of(load),
                           .first = 0};
  const auto block_tokens = static_cast<uint32_t>(load.blocks.front().tokens.size());
  query.first = static_cast<uint32_t>(load.peer->before.size()) / block_tokens;
  if (!link_->send(0, {k_query_tag, link::Bytes(encode(query))},
                   clock.now() + setup_.lines.patience)) {
    return End::broken;
  }
  TimePoint first{0};
  const auto speed = [&](TimePoint at) {
    const auto bytes = static_cast<double>((got - 1) * load.block_bytes);
    return bytes / std::max(to_seconds(at - first), 1e-9);
  };
  const auto learn = [&](TimePoint at) {
    if (got > 1 && to_seconds(at - first) >= k_measured_s) setup_.speed->observe(speed(at), at);
  };
  const auto stopped = [&] {
    learn(clock.now());
    return End::stopped;
  };
  while (true) {
    const TimePoint now = clock.now();
    if (is_cancelled(load)) return End::stopped;
    if (now >= job.by) return stopped();
    auto message = link_->receive(0, std::min(now + setup_.lines.patience, job.by));
    if (!message) return clock.now() >= job.by ? stopped() : End::broken;
    if (message->tag == k_end_tag) return End::whole;
    if (message->tag == k_wait_tag) continue;
    const auto block = decode_block(message->bytes.view());
    if (!block || message->tag != query.first + got || got == load.blocks.size()) {
      return End::broken;
    }
    const auto owner = std::make_shared<link::Bytes>(message->bytes);
    job.handlers.blocks(
        {{SharedBytes(owner, block->k), SharedBytes(owner, block->v), model::TierLevel::peer}});
    ++*setup_.taken;
    const TimePoint at = clock.now();
    if (got++ == 0) first = at;
    if (got == load.blocks.size()) learn(at);
    if (got < k_judged_after || got == load.blocks.size()) continue;
    const auto left = static_cast<double>((load.blocks.size() - got) * load.block_bytes);
    if (to_seconds(job.by - at) < left / speed(at)) return stopped();  // Computing is sooner.
  }
}

}  // namespace outrider::actors
