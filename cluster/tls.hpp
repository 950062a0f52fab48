#pragma once

#include <kj/compat/tls.h>

#include "base/result.hpp"
#include "cluster/credentials.hpp"

namespace outrider::cluster {

/// Mutual TLS: either side shows a certificate that the authority has signed. Errors as check() of
/// credentials.hpp has them.
Result<kj::Own<kj::TlsContext>> make_tls(const Credentials& credentials);

}  // namespace outrider::cluster
