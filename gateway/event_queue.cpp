#include "gateway/event_queue.hpp"

#include <iterator>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::gateway {

EventQueue::EventQueue(uint32_t sources) : queued_(sources), full_(sources) {}

schema::ClientStream::Level EventQueue::push(uint32_t source, schema::StreamEvent event) {
  using Level = schema::ClientStream::Level;
  std::unique_ptr<Waker> waker;
  Level level = Level::flowing;
  {
    std::lock_guard lock(mutex_);
    OUTRIDER_CHECK(source < queued_.size(), source);
    if (closed_) return Level::gone;
    events_.push_back({source, std::move(event)});
    if (++queued_[source] >= limits::client_stream_events_max) {
      full_[source] = true;
      level = Level::full;
    }
    waker = std::move(waker_);
  }
  if (waker) waker->wake();
  return level;
}

EventQueue::Batch EventQueue::take() {
  Batch batch;
  std::lock_guard lock(mutex_);
  batch.events.assign(std::make_move_iterator(events_.begin()),
                      std::make_move_iterator(events_.end()));
  events_.clear();
  for (uint32_t source = 0; source < queued_.size(); ++source) {
    queued_[source] = 0;
    if (full_[source]) batch.drained.push_back(source);
    full_[source] = false;
  }
  return batch;
}

std::unique_ptr<Waker> EventQueue::arm(std::unique_ptr<Waker> waker) {
  std::lock_guard lock(mutex_);
  if (!events_.empty()) return waker;
  waker_ = std::move(waker);
  return nullptr;
}

void EventQueue::wake() {
  std::unique_ptr<Waker> waker;
  {
    std::lock_guard lock(mutex_);
    waker = std::move(waker_);
  }
  if (waker) waker->wake();
}

void EventQueue::close() {
  std::unique_ptr<Waker> unused;  // destroyed without the lock
  std::deque<Tagged> dropped;
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(events_);
  unused = std::move(waker_);
}

}  // namespace outrider::gateway
