#include "gateway/token_channel.hpp"

#include <utility>

namespace outrider::gateway {
namespace {

class Tap final : public schema::ClientStream {
 public:
  Tap(std::shared_ptr<EventQueue> queue, uint32_t source)
      : queue_(std::move(queue)), source_(source) {}

  Level push(schema::StreamEvent event) override { return queue_->push(source_, std::move(event)); }

 private:
  std::shared_ptr<EventQueue> queue_;
  uint32_t source_;
};

class KjWaker final : public Waker {
 public:
  explicit KjWaker(kj::Own<kj::CrossThreadPromiseFulfiller<void>> fulfiller)
      : fulfiller_(kj::mv(fulfiller)) {}

  // A fulfiller may throw in its destructor, when its loop has ended; there is nobody to tell.
  ~KjWaker() noexcept override {
    [[maybe_unused]] auto ended =
        kj::runCatchingExceptions([&] { auto gone = kj::mv(fulfiller_); });
  }

  void wake() override {
    // After the loop has ended there is nobody to wake, and KJ says so by an exception.
    [[maybe_unused]] auto ended = kj::runCatchingExceptions([&] { fulfiller_->fulfill(); });
  }

 private:
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> fulfiller_;
};

}  // namespace

TokenChannel::TokenChannel(uint32_t sources) : queue_(std::make_shared<EventQueue>(sources)) {}

TokenChannel::~TokenChannel() {
  queue_->close();
}

std::shared_ptr<schema::ClientStream> TokenChannel::stream(uint32_t source) {
  return std::make_shared<Tap>(queue_, source);
}

kj::Promise<void> TokenChannel::ready() {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
  // An event that is there already gives the waker back: then it is ours to call.
  auto mine = queue_->arm(std::make_unique<KjWaker>(kj::mv(pair.fulfiller)));
  if (mine) mine->wake();
  return kj::mv(pair.promise);
}

}  // namespace outrider::gateway
