#include "cluster/credentials.hpp"

#include <kj/exception.h>
#include <kj/vector.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "cluster/tls.hpp"
#include "schema/exception_text.hpp"

namespace outrider::cluster {
namespace {

/// Each certificate of a file that may have several.
kj::Vector<kj::TlsCertificate> certificates(std::string_view pem) {
  constexpr std::string_view k_end = "-----END CERTIFICATE-----";
  kj::Vector<kj::TlsCertificate> found;
  do {
    const size_t end = pem.find(k_end);
    const size_t size = end == pem.npos ? pem.size() : end + k_end.size();
    found.add(kj::TlsCertificate(kj::heapString(pem.data(), size)));
    pem.remove_prefix(size);
  } while (pem.find("-----BEGIN") != pem.npos);
  return found;
}

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
Bio bio_of(const std::string& pem) {
  return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free};
}

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
/// Null: there is none in it.
Certificate certificate_of(const std::string& pem) {
  return {PEM_read_bio_X509(bio_of(pem).get(), nullptr, nullptr, nullptr), X509_free};
}

std::string text_of(const ASN1_TIME* time) {
  const Bio out(BIO_new(BIO_s_mem()), BIO_free);
  ASN1_TIME_print(out.get(), time);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out.get(), &bytes);
  return {bytes, static_cast<size_t>(std::max(size, 0L))};
}

/// KJ says nothing of a pair that does not fit; its handshakes fail.
bool belong_together(const std::string& certificate_pem, const std::string& key_pem) {
  const Certificate certificate = certificate_of(certificate_pem);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bio_of(key_pem).get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  const bool fits = certificate && key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();  // KJ takes what is left there for its own
  return fits;
}

/// Nor of one that nobody will take today. `certificate_pem` has one.
Result<void> check_dates(const std::string& certificate_pem) {
  const Certificate certificate = certificate_of(certificate_pem);
  const ASN1_TIME* const from = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const until = X509_get0_notAfter(certificate.get());
  const auto wrong = [](const std::string& what) {
    return fail(ErrorCode::invalid_argument, "cluster-tls-cert: the certificate " + what,
                "cluster-tls-cert");
  };
  if (X509_cmp_current_time(from) > 0) return wrong("is not valid before " + text_of(from));
  if (X509_cmp_current_time(until) < 0) return wrong("has expired: " + text_of(until));
  return {};
}

template <class Make>
Result<void> attempt(const char* field, const char* what, const Make& make) {
  const auto thrown = kj::runCatchingExceptions(make);
  KJ_IF_MAYBE (exception, thrown) {
    return fail(ErrorCode::invalid_argument,
                std::string(field) + ": " + what + " (" + schema::reason_of(*exception) + ")",
                field);
  }
  return {};
}

}  // namespace

Result<kj::Own<kj::TlsContext>> make_tls(const Credentials& credentials) {
  std::optional<kj::TlsCertificate> certificate;
  std::optional<kj::TlsPrivateKey> key;
  kj::Vector<kj::TlsCertificate> authorities;
  OUTRIDER_TRY(attempt("cluster-tls-cert", "there is no PEM certificate in it", [&] {
    certificate.emplace(kj::StringPtr(credentials.certificate_pem.c_str()));
  }));
  OUTRIDER_TRY(attempt("cluster-tls-key", "there is no PEM private key without a password in it",
                       [&] { key.emplace(kj::StringPtr(credentials.key_pem.c_str())); }));
  OUTRIDER_TRY(attempt("cluster-tls-ca", "there is no PEM certificate in it",
                       [&] { authorities = certificates(credentials.authority_pem); }));
  if (!belong_together(credentials.certificate_pem, credentials.key_pem)) {
    return fail(ErrorCode::invalid_argument,
                "cluster-tls-key: it is not the key of cluster-tls-cert", "cluster-tls-key");
  }
  OUTRIDER_TRY(check_dates(credentials.certificate_pem));
  kj::Own<kj::TlsContext> context;
  OUTRIDER_TRY(attempt("cluster-tls-cert", "it cannot be used", [&] {
    const kj::TlsKeypair pair{*key, *certificate};
    kj::TlsContext::Options options;
    options.useSystemTrustStore = false;
    options.verifyClients = true;
    options.trustedCertificates = authorities;
    options.defaultKeypair = pair;
    context = kj::heap<kj::TlsContext>(kj::mv(options));
  }));
  return kj::mv(context);
}

Result<void> check(const Credentials& credentials) {
  if (!credentials.has_tls()) return {};
  const auto made = make_tls(credentials);
  if (!made) return made.error();
  return {};
}

}  // namespace outrider::cluster
