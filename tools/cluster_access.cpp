#include "tools/cluster_access.hpp"

#include <utility>

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

}  // namespace outrider::tools
