#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

/// Certificates for tests, made as they run: no key of ours lies about.
namespace outrider::cluster::test {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* what) const {
    Free(what);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;

template <class Write>
std::string pem_of(const Write& write) {
  const std::unique_ptr<BIO, Freed<BIO_free_all>> out(BIO_new(BIO_s_mem()));
  write(out.get());
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return {text, static_cast<size_t>(size)};
}

/// Signs itself, and others.
class Authority {
 public:
  explicit Authority(const std::string& name)
      : key_(EVP_EC_gen("P-256")), own_(make(key_.get(), name, nullptr)) {}

  std::string pem() const { return certificate_pem(own_.get()); }

  struct Pair {
    std::string certificate_pem, key_pem;
  };
  /// Good from an hour before `hours` to an hour behind it.
  Pair issue(const std::string& name, long hours = 0) const {
    const Key key(EVP_EC_gen("P-256"));
    return {certificate_pem(make(key.get(), name, own_.get(), hours).get()), pem_of([&](BIO* out) {
              PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
            })};
  }

 private:
  static std::string certificate_pem(X509* certificate) {
    return pem_of([&](BIO* out) { PEM_write_bio_X509(out, certificate); });
  }

  Certificate make(EVP_PKEY* key, const std::string& name, X509* issuer, long hours = 0) const {
    Certificate made(X509_new());
    X509* x = made.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), issuer == nullptr ? 1 : 2);
    X509_gmtime_adj(X509_getm_notBefore(x), 3600 * (hours - 1));
    X509_gmtime_adj(X509_getm_notAfter(x), 3600 * (hours + 1));
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509* signer = issuer == nullptr ? x : issuer;
    X509_set_issuer_name(x, X509_get_subject_name(signer));
    X509_set_pubkey(x, key);
    add(x, signer, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    if (issuer != nullptr) add(x, signer, NID_subject_alt_name, "DNS:" + name);
    X509_sign(x, key_.get(), EVP_sha256());
    return made;
  }

  static void add(X509* certificate, X509* signer, int extension, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, signer, certificate, nullptr, nullptr, 0);
    const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> made(
        X509V3_EXT_conf_nid(nullptr, &context, extension, value.c_str()));
    X509_add_ext(certificate, made.get(), -1);
  }

  Key key_;
  Certificate own_;
};

}  // namespace outrider::cluster::test
