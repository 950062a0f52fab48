#include "gateway/gateway.hpp"

#include <utility>

#include "gateway/descriptors.hpp"
#include "gateway/http_server.hpp"
#include "gateway/rpc_server.hpp"
#include "schema/exception_text.hpp"

namespace outrider::gateway {
namespace {

using Port = kj::Own<kj::ConnectionReceiver>;

Result<Port> bind_port(kj::AsyncIoContext& io, const std::string& address, const char* field) {
  Port port;
  auto refused = kj::runCatchingExceptions([&] {
    port = io.provider->getNetwork().parseAddress(address.c_str()).wait(io.waitScope)->listen();
  });
  KJ_IF_MAYBE (exception, refused) {
    return fail(ErrorCode::io, "cannot listen on " + address + ": " + schema::reason_of(*exception),
                field);
  }
  return kj::mv(port);
}

}  // namespace

Gateway::Gateway(kj::Timer& timer, const GatewayOptions& options, Serving::Parts parts)
    : timer_(timer), options_(options), serving_(std::move(parts)) {
  const uint32_t wanted = options_.http.connections_max;
  auto& affordable = options_.http.connections_max;
  const uint64_t limit = raise_descriptor_limit();
  affordable =
      affordable_connections(wanted, options_.rpc_address.empty() ? 1 : 2,
                             limit - std::min<uint64_t>(limit, options_.other_descriptors));
  if (affordable < wanted) {
    serving_.log().warn("the limit of open files allows {} connections per port, not {}",
                        affordable, wanted);
  }
}

Gateway::~Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::open(kj::AsyncIoContext& io,
                                               const GatewayOptions& options, Parts parts) {
  ApiKeys keys;
  if (!options.api_key_file.empty()) {
    auto loaded = ApiKeys::load(options.api_key_file);
    if (!loaded) return loaded.error();
    keys = std::move(*loaded);
    OUTRIDER_TRY(keys.check_admin(options.admin_tenant));
  }
  auto http_port = bind_port(io, options.http_address, "http");
  if (!http_port) return http_port.error();
  auto& timer = io.provider->getTimer();
  std::unique_ptr<Gateway> gateway(new Gateway(
      timer, options,
      Serving::Parts{
          parts.clock, parts.metrics, std::move(parts.log), std::move(keys), options.version,
          options.log_prompts, options.admin_tenant, std::move(parts.cluster_json),
          std::move(parts.before_metrics), std::move(parts.has_target), std::move(parts.not_ready),
          std::move(parts.reset_cache), std::move(parts.wall_time), std::move(parts.random_bits)}));
  gateway->http_ = std::make_unique<HttpServer>(gateway->serving_, timer, gateway->options_.http);
  gateway->http_->listen(std::move(*http_port));
  if (!options.rpc_address.empty()) {
    auto rpc_port = bind_port(io, options.rpc_address, "rpc");
    if (!rpc_port) return rpc_port.error();
    gateway->rpc_ = std::make_unique<RpcServer>(gateway->serving_, timer, gateway->options_.http);
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

void Gateway::serve(std::vector<ServedModel> served, Backend& backend) {
  serving_.set_models(std::move(served), backend);
}

kj::Promise<bool> Gateway::drain() {
  // The ports stay open meanwhile: probes read 503 instead of a refused connection.
  serving_.begin_drain();
  auto timeout =
      timer_.afterDelay(options_.drain_timeout_ms * kj::MILLISECONDS).then([] { return false; });
  return serving_.idle().then([] { return true; }).exclusiveJoin(kj::mv(timeout));
}

kj::Promise<void> Gateway::stop() {
  serving_.stop();
  auto told = serving_.idle().then([this] {
    // An RPC call's answer leaves in the turns after its request has ended.
    auto rpc = kj::evalLast([this] {
                 return rpc_ ? rpc_->drain() : kj::Promise<void>(kj::READY_NOW);
               }).eagerlyEvaluate(nullptr);
    return http_->drain().then([rpc = kj::mv(rpc)]() mutable { return kj::mv(rpc); });
  });
  auto timeout = timer_.afterDelay(options_.stop_flush_ms * kj::MILLISECONDS);
  return told.exclusiveJoin(kj::mv(timeout));
}

}  // namespace outrider::gateway
