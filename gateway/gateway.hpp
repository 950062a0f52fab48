#pragma once

#include <kj/async-io.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gateway/http_settings.hpp"
#include "gateway/not_ready.hpp"
#include "gateway/serving.hpp"

namespace outrider::gateway {

class HttpServer;
class RpcServer;

struct GatewayOptions {
  std::string http_address = "127.0.0.1:8080";  ///< "host:port"; port 0: any free one.
  std::string rpc_address = "127.0.0.1:8081";   ///< Empty: no RPC.
  std::string api_key_file;                     ///< Empty: no keys.
  std::string admin_tenant;                     ///< See Serving::Parts.
  std::string version = "0.1.0";
  uint32_t drain_timeout_ms = limits::drain_timeout_ms;
  uint32_t stop_flush_ms = limits::stop_flush_ms;
  bool log_prompts = false;        ///< Prompt text in the log.
  uint32_t other_descriptors = 0;  ///< That this process needs besides connections.
  HttpSettings http;
};

/// Both client ports on one KJ thread. Life: open (ports answer, health says 503) → serve (ready)
/// → drain (health says 503, admitted requests finish) → stop (what is left fails) → destroyed. All
/// calls are made on the KJ thread; another thread (a model loader) hands its result over by
/// kj::Executor or a cross-thread fulfiller. Signals: main captures them with
/// kj::UnixEventPort::captureSignal before any thread starts, waits with
/// `io.unixEventPort.onSignal(SIGTERM)`, then calls drain() and stop().
class Gateway {
 public:
  struct Parts {
    const Clock& clock;
    ServingMetrics& metrics;
    std::shared_ptr<spdlog::logger> log;
    std::function<std::string(const Viewer&)> cluster_json;  ///< GET /cluster; may be empty
    std::function<void()> before_metrics;   ///< brings gauges up to date; may be empty
    std::function<bool()> has_target = {};  ///< whether requests can be served now; empty: they can
    NotReady not_ready = {};
    ResetCache reset_cache = {};  ///< POST /reset_prefix_cache; may be empty
    std::function<UnixTime()> wall_time = outrider::wall_time;
    std::function<uint64_t()> random_bits = outrider::random_bits;
  };

  /// Reads the key file and binds the ports. Raises the process's limit of descriptors.
  static Result<std::unique_ptr<Gateway>> open(kj::AsyncIoContext& io,
                                               const GatewayOptions& options, Parts parts);
  ~Gateway();

  /// The ports as bound.
  uint16_t http_port() const;
  uint16_t rpc_port() const;  ///< 0: no RPC.

  /// The models are there: ready. The first answers requests that name none. The backend must
  /// outlive this gateway.
  void serve(std::vector<ServedModel> served, Backend& backend);

  /// New generations get 503 from now on. True when the admitted ones have ended, false when some
  /// still run after drain_timeout_ms.
  kj::Promise<bool> drain();
  /// After drain, or in the middle of it: fails what still runs with 503, and resolves when the
  /// clients have their last bytes and HTTP's connections are closed, or after stop_flush_ms.
  kj::Promise<void> stop();

  Phase phase() const { return serving_.phase(); }
  uint32_t open_requests() const { return serving_.open_requests(); }

 private:
  Gateway(kj::Timer& timer, const GatewayOptions& options, Serving::Parts parts);

  kj::Timer& timer_;
  GatewayOptions options_;
  Serving serving_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RpcServer> rpc_;
};

}  // namespace outrider::gateway
