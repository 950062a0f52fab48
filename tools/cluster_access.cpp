#include "tools/cluster_access.hpp"

#include <algorithm>
#include <utility>

#include "base/comma_list.hpp"
#include "base/limits.hpp"
#include "base/regular_file.hpp"
#include "cluster/endpoint.hpp"
#include "tools/engine_options.hpp"

namespace outrider::tools {
namespace {

Result<void> read_pem(const Settings& settings, const char* name, std::string& out) {
  const std::string& path = settings.text(name);
  auto read = read_regular_file(path, limits::certificate_file_bytes_max);
  if (!read) {
    return fail(ErrorCode::invalid_argument,
                std::string(name) + ": cannot read " + path + ": " + read.error().message, name);
  }
  if (read->empty()) {
    return fail(ErrorCode::invalid_argument, std::string(name) + ": " + path + " is empty", name);
  }
  out = std::move(*read);
  return {};
}

Result<std::vector<cluster::Endpoint>> router_addresses(const Settings& settings) {
  const std::string& addresses = settings.text("join");
  if (addresses.empty()) {
    return fail(ErrorCode::invalid_argument, "join: where is the server? --join HOST:PORT", "join");
  }
  std::vector<cluster::Endpoint> routers;
  for (const std::string_view address : comma_list(addresses)) {
    if (address.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "join: \"" + addresses + "\" has a comma with no address beside it", "join");
    }
    cluster::Endpoint router;
    OUTRIDER_ASSIGN(router, cluster::parse_endpoint(std::string(address), "join"));
    const auto is_same = [&](const cluster::Endpoint& it) {
      return to_string(it) == to_string(router);
    };
    if (std::ranges::any_of(routers, is_same)) {
      return fail(ErrorCode::invalid_argument,
                  "join: \"" + std::string(address) + "\" stands there twice", "join");
    }
    if (router.host.empty() || router.port == 0) {
      return fail(ErrorCode::invalid_argument,
                  "join: \"" + std::string(address) + "\" needs a host and a port to connect to",
                  "join");
    }
    routers.push_back(std::move(router));
  }
  return routers;
}

/// A certificate is looked at for a name: with an address none would ever fit.
Result<void> check_tls_names(const cluster::Credentials& credentials,
                             const std::vector<cluster::Endpoint>& routers) {
  if (!credentials.has_tls()) return {};
  const std::string& name = credentials.tls_name;
  if (!name.empty()) {
    if (!cluster::is_address(name)) return {};
    return fail(ErrorCode::invalid_argument,
                "cluster-tls-name: \"" + name +
                    "\" is an address; it is a name in the server's certificate",
                "cluster-tls-name");
  }
  for (const cluster::Endpoint& router : routers) {
    if (!cluster::is_address(router.host)) continue;
    return fail(ErrorCode::invalid_argument,
                "join: " + cluster::to_string(router) +
                    " has no name to look for in the server's certificate: join it by name, or "
                    "say --cluster-tls-name NAME",
                "join");
  }
  return {};
}

/// Whoever answers there gives it prompts to compute, and reads the answers.
Result<void> check_exposure(const cluster::Credentials& credentials,
                            const std::vector<cluster::Endpoint>& routers) {
  if (credentials.has_any()) return {};
  for (const cluster::Endpoint& router : routers) {
    if (cluster::is_loopback(router.host)) continue;
    return fail(ErrorCode::invalid_argument,
                "join: " + cluster::to_string(router) +
                    " is on another machine: give all processes the same --cluster-secret-file, "
                    "or certificates (--cluster-tls-cert)",
                "join");
  }
  return {};
}

}  // namespace

Result<cluster::Credentials> cluster_credentials(const Settings& settings) {
  cluster::Credentials credentials;
  if (!settings.text("cluster-secret-file").empty()) {
    OUTRIDER_ASSIGN(credentials.secret, cluster_secret(settings));
  }
  constexpr const char* k_files[] = {"cluster-tls-cert", "cluster-tls-key", "cluster-tls-ca"};
  std::string* const parts[] = {&credentials.certificate_pem, &credentials.key_pem,
                                &credentials.authority_pem};
  const char* missing = nullptr;
  bool any = false;
  for (const char* name : k_files) {
    const bool given = !settings.text(name).empty();
    any = any || given;
    if (!given && missing == nullptr) missing = name;
  }
  if (any && missing != nullptr) {
    return fail(ErrorCode::invalid_argument,
                std::string(missing) +
                    ": TLS takes all three of cluster-tls-cert, cluster-tls-key and cluster-tls-ca",
                missing);
  }
  for (size_t i = 0; any && i < std::size(k_files); ++i) {
    OUTRIDER_TRY(read_pem(settings, k_files[i], *parts[i]));
  }
  credentials.tls_name = settings.text("cluster-tls-name");
  OUTRIDER_TRY(cluster::check(credentials));
  return credentials;
}

Result<std::vector<std::string>> check_cluster_access(const Settings& settings,
                                                      const cluster::Credentials& credentials) {
  std::vector<std::string> warnings;
  const std::string& address = settings.text("cluster");
  if (address == "off") return warnings;
  cluster::Endpoint endpoint;
  OUTRIDER_ASSIGN(endpoint, cluster::parse_endpoint(address, "cluster"));
  if (cluster::is_loopback(endpoint.host)) return warnings;
  if (!credentials.has_any()) {
    return fail(ErrorCode::invalid_argument,
                "cluster: other machines reach " + address +
                    ", and whoever joins reads prompts and is believed: give all processes the "
                    "same --cluster-secret-file, or certificates (--cluster-tls-cert)",
                "cluster");
  }
  if (!credentials.has_tls()) {
    warnings.push_back("cluster: other machines reach " + address +
                       "; the secret says who may join, but prompts and answers are not "
                       "encrypted on their way without --cluster-tls-cert");
  }
  return warnings;
}

Result<std::vector<cluster::Endpoint>> routers_to_join(const Settings& settings,
                                                       const cluster::Credentials& credentials) {
  std::vector<cluster::Endpoint> routers;
  OUTRIDER_ASSIGN(routers, router_addresses(settings));
  OUTRIDER_TRY(check_tls_names(credentials, routers));
  OUTRIDER_TRY(check_exposure(credentials, routers));
  return routers;
}

}  // namespace outrider::tools
