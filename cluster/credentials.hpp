#pragma once

#include <string>

#include "base/result.hpp"

namespace outrider::cluster {

/// By what the processes of one cluster know each other. Each part may be empty; with neither,
/// whoever reaches a port is believed.
struct Credentials {
  std::string secret;  ///< the same in all of them: limits::cluster_secret_bytes_min and more

  std::string certificate_pem;  ///< this process's own, with its chain
  std::string key_pem;          ///< its private key, not encrypted
  std::string authority_pem;    ///< who signed the certificates of all of them: one or several
  std::string tls_name;  ///< that the server's certificate must have; empty: the host dialled

  bool has_tls() const {
    return !certificate_pem.empty() || !key_pem.empty() || !authority_pem.empty();
  }
  bool has_any() const { return has_tls() || !secret.empty(); }
};

/// Whether the certificates and the key can be read and belong together. The error's field is
/// cluster-tls-cert, cluster-tls-key or cluster-tls-ca.
Result<void> check(const Credentials& credentials);

}  // namespace outrider::cluster
