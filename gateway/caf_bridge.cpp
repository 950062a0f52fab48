#include "gateway/caf_bridge.hpp"

#include <atomic>
#include <caf/send.hpp>
#include <utility>

#include "schema/messages.hpp"

namespace outrider::gateway {
namespace {

using schema::ClientStream;

/// A message to a dead mailbox is dropped without a word. This notices: whoever lets go of the last
/// reference to a stream that had no terminal event gives it one.
class GuardedStream final : public ClientStream {
 public:
  explicit GuardedStream(std::shared_ptr<ClientStream> inner) : inner_(std::move(inner)) {}
  ~GuardedStream() override {
    if (done_) return;
    schema::StreamDone done;
    done.outcome = schema::StreamDone::Outcome::failed;
    done.error = fail(ErrorCode::unavailable, "the server is shutting down");
    inner_->push(std::move(done));
  }

  Level push(schema::StreamEvent event) override {
    if (std::holds_alternative<schema::StreamDone>(event)) done_ = true;
    return inner_->push(std::move(event));
  }

 private:
  std::shared_ptr<ClientStream> inner_;
  std::atomic<bool> done_ = false;
};

class CafBridge final : public Backend {
 public:
  explicit CafBridge(schema::FrontDeskHandle front_desk) : front_desk_(std::move(front_desk)) {}

  void open(uint64_t session, const std::string& model, GenerationRequest request,
            std::shared_ptr<ClientStream> stream) override {
    caf::anon_send(front_desk_, schema::OpenSession{
                                    session, model,
                                    std::make_shared<const GenerationRequest>(std::move(request)),
                                    std::make_shared<GuardedStream>(std::move(stream))});
  }
  void cancel(uint64_t session) override {
    caf::anon_send(front_desk_, schema::CancelSession{session});
  }
  void resume(uint64_t session) override {
    caf::anon_send(front_desk_, schema::ResumeSession{session});
  }

 private:
  schema::FrontDeskHandle front_desk_;
};

}  // namespace

std::unique_ptr<Backend> make_caf_bridge(schema::FrontDeskHandle front_desk) {
  return std::make_unique<CafBridge>(std::move(front_desk));
}

}  // namespace outrider::gateway
