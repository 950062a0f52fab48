#include "gateway/gateway.hpp"

#include <utility>

#include "gateway/http_server.hpp"
#include "gateway/rpc_server.hpp"

namespace outrider::gateway {
namespace {

using Port = kj::Own<kj::ConnectionReceiver>;

Result<Port> bind_port(kj::AsyncIoContext& io, const std::string& address, const char* field) {
  Port port;
  auto refused = kj::runCatchingExceptions([&] {
    port = io.provider->getNetwork().parseAddress(address.c_str()).wait(io.waitScope)->listen();
  });
  KJ_IF_MAYBE (exception, refused) {
    return fail(ErrorCode::io,
                "cannot listen on " + address + ": " + exception->getDescription().cStr(), field);
  }
  return kj::mv(port);
}

}  // namespace

Gateway::Gateway(kj::Timer& timer, const GatewayOptions& options, Serving::Parts parts)
    : timer_(timer), options_(options), serving_(std::move(parts)) {}

Gateway::~Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::open(kj::AsyncIoContext& io,
                                               const GatewayOptions& options, Parts parts) {
  ApiKeys keys;
  if (!options.api_key_file.empty()) {
    auto loaded = ApiKeys::load(options.api_key_file);
    if (!loaded) return loaded.error();
    keys = std::move(*loaded);
  }
  auto http_port = bind_port(io, options.http_address, "http");
  if (!http_port) return http_port.error();
  auto& timer = io.provider->getTimer();
  std::unique_ptr<Gateway> gateway(
      new Gateway(timer, options,
                  Serving::Parts{parts.clock, parts.metrics, std::move(parts.log), std::move(keys),
                                 options.version, options.priority_min, options.log_prompts,
                                 std::move(parts.cluster_json), std::move(parts.before_metrics),
                                 std::move(parts.wall_time), std::move(parts.random_bits)}));
  gateway->http_ = std::make_unique<HttpServer>(gateway->serving_, timer, options.http);
  gateway->http_->listen(std::move(*http_port));
  if (!options.rpc_address.empty()) {
    auto rpc_port = bind_port(io, options.rpc_address, "rpc");
    if (!rpc_port) return rpc_port.error();
    gateway->rpc_ = std::make_unique<RpcServer>(gateway->serving_, timer, options.http);
    gateway->rpc_->listen(std::move(*rpc_port));
  }
  return gateway;
}

uint16_t Gateway::http_port() const {
  return http_->port();
}

uint16_t Gateway::rpc_port() const {
  return rpc_ ? rpc_->port() : uint16_t{0};
}

void Gateway::serve(ServedModel served, Backend& backend) {
  serving_.set_model(std::move(served), backend);
}

kj::Promise<void> Gateway::drain() {
  // The ports stay open meanwhile: probes read 503 instead of a refused connection.
  auto idle = serving_.begin_drain();
  auto timeout = timer_.afterDelay(options_.drain_timeout_ms * kj::MILLISECONDS);
  return idle.exclusiveJoin(kj::mv(timeout));
}

}  // namespace outrider::gateway
