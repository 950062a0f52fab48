#include "gateway/rpc_server.hpp"

#include <capnp/rpc-twoparty.h>

#include "base/limits.hpp"
#include "gateway/rpc_service.hpp"
#include "gateway/rpc_stream.hpp"

namespace outrider::gateway {
namespace {

capnp::ReaderOptions reader_options() {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = limits::rpc_message_words_max;
  options.nestingLimit = limits::json_depth_max;
  return options;
}

struct RpcConnection {
  RpcConnection(kj::Own<RpcStream> client, kj::Own<rpc::Login::Server> login)
      : stream(kj::mv(client)),
        network(*stream, capnp::rpc::twoparty::Side::SERVER, reader_options()),
        system(capnp::makeRpcServer(network, rpc::Login::Client(kj::mv(login)))) {
    system.setFlowLimit(limits::rpc_waiting_words_max);
  }

  kj::Own<RpcStream> stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> system;
};

}  // namespace

RpcServer::RpcServer(Serving& serving, kj::Timer& timer, const HttpSettings& settings)
    : serving_(serving), shared_(new RpcShared{&serving, timer, settings, {}}) {}

RpcServer::~RpcServer() {
  shared_->serving = nullptr;
  shared_->running.cancel("the server stops");
}

void RpcServer::listen(kj::Own<kj::ConnectionReceiver> port) {
  listener_ = std::make_unique<Listener>(
      Listener::Parts{kj::mv(port), shared_->timer, serving_.metrics(), serving_.parts().log,
                      shared_->settings.connections_max},
      [this](kj::Own<kj::AsyncIoStream> stream) { return serve(kj::mv(stream)); });
}

kj::Promise<void> RpcServer::serve(kj::Own<kj::AsyncIoStream> stream) {
  auto logged_in = std::make_shared<bool>(false);
  auto connection = kj::heap<RpcConnection>(kj::heap<RpcStream>(kj::mv(stream), logged_in),
                                            new_login(shared_, logged_in));
  // As HTTP's headers: who has not shown a key by then holds a place for nothing.
  auto too_late = shared_->timer.afterDelay(shared_->settings.header_timeout_ms * kj::MILLISECONDS)
                      .then([logged_in]() -> kj::Promise<void> {
                        if (*logged_in) return kj::NEVER_DONE;
                        return kj::READY_NOW;
                      });
  auto half_closed =
      drains_.addBranch()
          .then([stream = connection->stream.get()] { return stream->end_writing(); })
          .then([] { return kj::Promise<void>(kj::NEVER_DONE); });
  auto gone = connection->network.onDisconnect()
                  .exclusiveJoin(kj::mv(too_late))
                  .exclusiveJoin(kj::mv(half_closed));
  return gone.attach(kj::mv(connection));
}

kj::Promise<void> RpcServer::drain() {
  listener_->stop_accepting();
  draining_.fulfiller->fulfill();
  return listener_->idle();
}

}  // namespace outrider::gateway
