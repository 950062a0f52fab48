#include "cluster/gate.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/limits.hpp"
#include "cluster/certificates.test.hpp"
#include "cluster/frames.hpp"

namespace outrider::cluster {
namespace {

/// Far more than anything here takes: it bounds a failure.
constexpr auto k_patience = std::chrono::seconds(60);
constexpr int k_patience_ms = 60'000;
const std::string k_secret = "the secret of this cluster";

/// Sockets that a gate let in.
class Admitted {
 public:
  void push(kj::AutoCloseFd socket) {
    const std::lock_guard lock(mutex_);
    sockets_.push_back(kj::mv(socket));
    filled_.notify_all();
  }
  kj::AutoCloseFd pop() {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, k_patience, [&] { return !sockets_.empty(); });
    if (sockets_.empty()) return {};
    auto socket = kj::mv(sockets_.front());
    sockets_.pop_front();
    return socket;
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return sockets_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<kj::AutoCloseFd> sockets_;
};

/// What the gate's thread counts comes a moment after what it did; the caller expects it then.
void wait_for(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + k_patience;
  while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

struct Side {
  std::ostringstream lines;  ///< Read only after the gate.
  std::unique_ptr<Gate> gate;
  Admitted admitted;
  Endpoint at;

  explicit Side(const Credentials& credentials) {
    auto log = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines));
    auto opened = Gate::open({credentials, log});
    EXPECT_TRUE(opened) << opened.error().message;
    if (opened) gate = std::move(*opened);
  }
  Side& listening() {
    const auto port =
        gate->listen({"127.0.0.1", 0}, [this](auto socket) { admitted.push(kj::mv(socket)); });
    EXPECT_TRUE(port) << port.error().message;
    if (port) at = {"127.0.0.1", *port};
    return *this;
  }
  uint64_t refused(Refusal reason) const {
    return gate->counters().refused[static_cast<size_t>(reason)];
  }
  void wait_refused(Refusal reason, uint64_t count) const {
    wait_for([&] { return refused(reason) >= count; });
    EXPECT_EQ(refused(reason), count) << to_string(reason);
  }
};

Credentials with_secret(const std::string& secret) {
  Credentials credentials;
  credentials.secret = secret;
  return credentials;
}

void send_all(int socket, const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    pollfd wait{socket, POLLOUT, 0};
    ASSERT_EQ(::poll(&wait, 1, k_patience_ms), 1);
    const ssize_t sent = ::send(socket, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return;  // it was cut
    at += static_cast<size_t>(sent);
  }
}

/// Up to `size` bytes; fewer if the other side ends.
std::string receive(int socket, size_t size) {
  std::string got;
  while (got.size() < size) {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, k_patience_ms) != 1) break;
    char buffer[4096];
    const ssize_t part = ::recv(socket, buffer, std::min(sizeof buffer, size - got.size()), 0);
    if (part <= 0) break;
    got.append(buffer, static_cast<size_t>(part));
  }
  return got;
}

/// As members send them: a greeting, then messages and heartbeats.
std::string frame(uint8_t operation, const std::string& payload) {
  std::string bytes(FrameReader::k_head_bytes, '\0');
  bytes[0] = static_cast<char>(operation);
  const size_t length = payload.size();
  for (int i = 0; i < 4; ++i) bytes[4 + i] = static_cast<char>(length >> (24 - 8 * i));
  return bytes + payload;
}
std::string message(size_t contents) {
  const std::string types = "@<>+outrider::schema::Load";
  return frame(2, std::string(3, '\0') + static_cast<char>(types.size()) + types +
                      std::string(contents, 'x'));
}

void expect_talk(int member, int server) {
  std::string said;
  for (const size_t size : {0U, 1U, 60'000U, 17U, 60'000U}) said += message(size);
  for (const bool of_server : {true, false}) {
    const int from = of_server ? server : member;
    const int to = of_server ? member : server;
    const std::string text = frame(of_server ? 0 : 1, std::string(40, 'n')) + said;
    std::thread sender([&] { send_all(from, text); });
    EXPECT_EQ(receive(to, text.size()), text);
    sender.join();
  }
}

/// A connection without a gate, from 127.0.0.`host`.
kj::AutoCloseFd connect_raw(const Endpoint& at, uint32_t host = 1) {
  kj::AutoCloseFd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  EXPECT_EQ(::bind(made, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(at.port);
  EXPECT_EQ(::connect(made, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return made;
}

template <class Bytes>
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// As members begin, until the server has answered.
std::optional<Opening> greet(int socket, const Nonce& member) {
  send_all(socket, text_of(encode({.nonce = member})));
  const std::string bytes = receive(socket, k_opening_bytes);
  OpeningBytes opening{};
  std::copy(bytes.begin(), bytes.end(), opening.begin());
  return decode_opening(opening);
}

TEST(Gate, CarriesBytesBothWays) {
  for (const std::string& secret : {std::string(), k_secret}) {
    Side server(with_secret(secret));
    Side member(with_secret(secret));
    auto dialled = member.gate->dial(server.listening().at);
    ASSERT_TRUE(dialled) << dialled.error().message;
    const auto admitted = server.admitted.pop();
    expect_talk(*dialled, admitted);
    EXPECT_EQ(server.gate->counters().connected, 1U);
  }
}

TEST(Gate, AnEndOnEitherSideEndsBoth) {
  Side server(with_secret(k_secret));
  Side member(with_secret(k_secret));
  server.listening();
  for (const bool member_ends : {true, false}) {
    auto dialled = member.gate->dial(server.at);
    ASSERT_TRUE(dialled);
    auto admitted = server.admitted.pop();
    (member_ends ? *dialled : admitted) = nullptr;
    EXPECT_EQ(receive(member_ends ? admitted.get() : dialled->get(), 1), "");
  }
}

TEST(Gate, AnotherSecretIsRefusedOnBothSides) {
  for (const auto& [of_server, of_member] :
       {std::pair(k_secret, std::string("the secret of another one")),
        std::pair(k_secret, std::string()), std::pair(std::string(), k_secret)}) {
    Side server(with_secret(of_server));
    Side member(with_secret(of_member));
    const auto dialled = member.gate->dial(server.listening().at);
    ASSERT_FALSE(dialled);
    EXPECT_NE(dialled.error().message.find("secret"), std::string::npos) << dialled.error().message;
    EXPECT_TRUE(server.admitted.is_empty());
    server.wait_refused(Refusal::secret, 1);
  }
}

TEST(Gate, AServerThatDoesNotKnowTheSecretIsNotBelieved) {
  // It says yes to any proof, and cannot give its own.
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 4), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::thread impostor([&] {
    const kj::AutoCloseFd peer(::accept(listener, nullptr, nullptr));
    receive(peer, k_opening_bytes);
    send_all(peer, text_of(encode({.nonce = random_nonce()})));
    receive(peer, sizeof(Digest256));
    send_all(peer, std::string(k_verdict_bytes, '\0'));
    receive(peer, 1);
  });
  Side member(with_secret(k_secret));
  const auto dialled = member.gate->dial({"127.0.0.1", ntohs(address.sin_port)});
  EXPECT_FALSE(dialled);
  impostor.join();
  ::close(listener);
}

TEST(Gate, WhatWasRecordedProvesNothing) {
  Side server(with_secret(k_secret));
  server.listening();
  const Nonce member = random_nonce();
  const auto first = connect_raw(server.at);
  const auto opening = greet(first, member);
  ASSERT_TRUE(opening);
  const std::string proof =
      text_of(Exchange{Purpose::actors, member, opening->nonce}.member_proof(k_secret));
  send_all(first, proof);
  EXPECT_EQ(receive(first, k_verdict_bytes)[0], 0) << "a good one";
  const auto again = connect_raw(server.at);
  ASSERT_TRUE(greet(again, member));
  send_all(again, proof);
  EXPECT_EQ(receive(again, k_verdict_bytes)[0], static_cast<char>(Refusal::secret));
  EXPECT_EQ(receive(again, 1), "");
  server.wait_refused(Refusal::secret, 1);
}

TEST(Gate, OtherVersionsAndOtherProtocolsAreRefused) {
  Side server(with_secret(k_secret));
  server.listening();
  const auto newer = connect_raw(server.at);
  send_all(newer, text_of(encode({.version = k_wire_version + 1, .nonce = random_nonce()})));
  EXPECT_EQ(receive(newer, k_opening_bytes)[10], static_cast<char>(Refusal::version));
  EXPECT_EQ(receive(newer, 1), "");
  server.wait_refused(Refusal::version, 1);
  const auto tls = connect_raw(server.at);
  send_all(tls, std::string("\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03", 10));
  EXPECT_EQ(receive(tls, 1), "");
  server.wait_refused(Refusal::protocol, 1);
  const auto web = connect_raw(server.at);
  send_all(web, "GET / HTTP/1.1\r\nHost: of.somebody.else\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(receive(web, 1), "");
  server.wait_refused(Refusal::protocol, 2);
  const auto brief = connect_raw(server.at);
  send_all(brief, "GET / HTTP/1.0\r\n\r\n");  // Less than an opening, and waits for an answer.
  EXPECT_EQ(receive(brief, 1), "");
  server.wait_refused(Refusal::protocol, 3);
  server.gate.reset();
  EXPECT_NE(server.lines.str().find("speaks TLS, this port has none"), std::string::npos);
}

TEST(Gate, WhoSaysNothingIsCutOff) {
  Side server(with_secret(k_secret));
  server.listening();
  const auto silent = connect_raw(server.at);
  EXPECT_EQ(receive(silent, 1), "");
  server.wait_refused(Refusal::timeout, 1);
}

TEST(Gate, ManyThatSayNothingDoNotKeepAMemberOut) {
  Side server(with_secret(k_secret));
  server.listening();
  std::vector<kj::AutoCloseFd> silent;
  for (uint32_t i = 0; i < limits::cluster_callers_max + 20; ++i) {
    silent.push_back(connect_raw(server.at));
  }
  Side member(with_secret(k_secret));
  auto dialled = member.gate->dial(server.at);
  ASSERT_TRUE(dialled) << dialled.error().message;
  expect_talk(*dialled, server.admitted.pop());
  wait_for([&] { return server.refused(Refusal::full) >= 20; });
  EXPECT_GE(server.refused(Refusal::full), 20U);
}

TEST(Gate, ManyOfOneAddressDoNotPushOutWhoComesFromAnother) {
  Side server(with_secret(k_secret));
  server.listening();
  const auto elsewhere = connect_raw(server.at, 2);
  std::vector<kj::AutoCloseFd> silent;
  for (uint32_t i = 0; i < limits::cluster_callers_max + 20; ++i) {
    silent.push_back(connect_raw(server.at));
  }
  server.wait_refused(Refusal::full, 21);
  EXPECT_TRUE(greet(elsewhere, random_nonce()));
}

TEST(Gate, FramesThatAreTooLongNeverReachTheActors) {
  Side server(with_secret(k_secret));
  Side member(with_secret(k_secret));
  auto dialled = member.gate->dial(server.listening().at);
  ASSERT_TRUE(dialled);
  const auto admitted = server.admitted.pop();
  std::string wrong = message(0);
  wrong[4] = '\x40';  // a gigabyte
  const std::string good = frame(1, "me") + message(10);
  send_all(*dialled, good);
  EXPECT_EQ(receive(admitted, good.size()), good);
  send_all(*dialled, wrong);
  EXPECT_EQ(receive(admitted, 1), "");
  EXPECT_EQ(receive(*dialled, 1), "");
  server.wait_refused(Refusal::frame, 1);
}

TEST(Gate, BrokenConnectionsLeaveNoPlaceTaken) {
  Side server(with_secret(k_secret));
  server.listening();
  for (int i = 0; i < 300; ++i) {
    const auto broken = connect_raw(server.at);
    const Nonce member = random_nonce();
    send_all(broken, text_of(encode({.nonce = member})));
    const std::string bytes = receive(broken, k_opening_bytes);
    if (bytes.size() < k_opening_bytes) continue;
    OpeningBytes opening;
    std::copy(bytes.begin(), bytes.end(), opening.begin());
    send_all(broken,
             text_of(Exchange{Purpose::actors, member, decode_opening(opening)->nonce}.member_proof(
                 k_secret)));
    const linger at_once{1, 0};  // a reset
    ::setsockopt(broken, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  const auto end = std::chrono::steady_clock::now() + k_patience;
  while (server.gate->counters().connected > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(server.gate->counters().connected, 0U);
}

/// Both ends hear what the other says.
void expect_line(int a, int b) {
  const std::string text(300'000, 'k');
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    std::thread sender([&, from = from] { send_all(from, text); });
    EXPECT_EQ(receive(to, text.size()), text);
    sender.join();
  }
}

void wait_line_ends(const Gate& gate, uint32_t count) {
  wait_for([&] { return gate.counters().line_ends == count; });
  EXPECT_EQ(gate.counters().line_ends, count);
}

TEST(GateLines, TwoEndsOfOneNameAreJoined) {
  Side server(with_secret(k_secret));
  Side one(with_secret(k_secret));
  Side other(with_secret(k_secret));
  server.listening();
  const LineToken first = random_line_token();
  const LineToken second = random_line_token();
  auto a = one.gate->dial_line(server.at, first);
  auto b = one.gate->dial_line(server.at, second);
  auto to_a = other.gate->dial_line(server.at, first);
  auto to_b = server.gate->own_line(second);
  ASSERT_TRUE(a && b && to_a && to_b);
  expect_line(*a, *to_a);
  expect_line(*to_b, *b);
  EXPECT_EQ(server.gate->counters().line_ends, 4U);
  EXPECT_EQ(server.gate->counters().connected, 0U);
  EXPECT_TRUE(server.admitted.is_empty()) << "a line is no member";
  *a = nullptr;
  EXPECT_EQ(receive(*to_a, 1), "");
  *to_b = nullptr;
  EXPECT_EQ(receive(*b, 1), "");
  wait_line_ends(*server.gate, 0);
}

TEST(GateLines, AnEndAloneIsCutAfterAWhile) {
  Side server(with_secret(k_secret));
  Side member(with_secret(k_secret));
  auto alone = member.gate->dial_line(server.listening().at, random_line_token());
  auto own = server.gate->own_line(random_line_token());
  ASSERT_TRUE(alone && own);
  EXPECT_EQ(receive(*alone, 1), "");
  EXPECT_EQ(receive(*own, 1), "");
  wait_line_ends(*server.gate, 0);
}

TEST(GateLines, NoMoreThanThereMayBe) {
  Side server(with_secret(k_secret));
  Side member(with_secret(k_secret));
  server.listening();
  std::vector<kj::AutoCloseFd> ends;
  const LineToken joined = random_line_token();
  for (int i = 0; i < 2; ++i) {
    auto end = server.gate->own_line(joined);
    ASSERT_TRUE(end);
    ends.push_back(kj::mv(*end));
  }
  while (server.gate->counters().line_ends < limits::cluster_line_ends_max) {
    auto end = server.gate->own_line(random_line_token());
    if (end) ends.push_back(kj::mv(*end));
  }
  EXPECT_FALSE(member.gate->dial_line(server.at, random_line_token()));
  server.wait_refused(Refusal::full, 1);
  auto dialled = member.gate->dial(server.at);
  ASSERT_TRUE(dialled) << "members are counted apart";
  expect_talk(*dialled, server.admitted.pop());
  expect_line(ends[0], ends[1]);
}

TEST(GateLines, BytesThatKeepComingHoldUpNobodyElse) {
  Side server(with_secret(k_secret));
  Side member(with_secret(k_secret));
  server.listening();
  std::vector<kj::AutoCloseFd> ends;
  for (int i = 0; i < 4; ++i) {
    const LineToken token = random_line_token();
    for (int end = 0; end < 2; ++end) {
      auto dialled = member.gate->dial_line(server.at, token);
      ASSERT_TRUE(dialled);
      ends.push_back(kj::mv(*dialled));
    }
  }
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
  for (size_t i = 0; i < ends.size(); i += 2) {
    busy.emplace_back([&stop, from = ends[i].get()] {
      const std::vector<char> bytes(1 << 16);
      while (!stop) ::send(from, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    });
    busy.emplace_back([&stop, to = ends[i + 1].get()] {
      std::vector<char> bytes(1 << 16);
      while (!stop) ::recv(to, bytes.data(), bytes.size(), MSG_DONTWAIT);
    });
  }
  for (int i = 0; i < 5; ++i) {
    auto dialled = member.gate->dial(server.at);
    EXPECT_TRUE(dialled) << dialled.error().message;
    if (dialled) expect_talk(*dialled, server.admitted.pop());
    EXPECT_TRUE(server.gate->own_line(random_line_token()));
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
}

TEST(GateLines, WhoDoesNotKnowTheSecretGetsNone) {
  Side server(with_secret(k_secret));
  Side stranger(with_secret("another one's secret"));
  const LineToken token = random_line_token();
  auto own = server.listening().gate->own_line(token);
  ASSERT_TRUE(own);
  EXPECT_FALSE(stranger.gate->dial_line(server.at, token));
  server.wait_refused(Refusal::secret, 1);
  EXPECT_EQ(server.gate->counters().line_ends, 1U);
}

TEST(Gate, NobodyThereIsAnErrorInWords) {
  Side server({});
  const Endpoint was = server.listening().at;
  server.gate->stop_listening();
  Side member({});
  const auto dialled = member.gate->dial(was);
  ASSERT_FALSE(dialled);
  EXPECT_NE(dialled.error().message.find("Connection refused"), std::string::npos)
      << dialled.error().message;
}

class TlsGate : public testing::Test {
 protected:
  Credentials of(const test::Authority& authority, const std::string& name,
                 const test::Authority& trusted) const {
    const auto pair = authority.issue(name);
    Credentials credentials;
    credentials.certificate_pem = pair.certificate_pem;
    credentials.key_pem = pair.key_pem;
    credentials.authority_pem = trusted.pem();
    credentials.tls_name = "server";
    return credentials;
  }
  /// The error's text; empty: they talk.
  static std::string dial(const Credentials& of_server, const Credentials& of_member) {
    Side server(of_server);
    Side member(of_member);
    auto dialled = member.gate->dial(server.listening().at);
    if (!dialled) {
      EXPECT_TRUE(server.admitted.is_empty());
      return dialled.error().message;
    }
    expect_talk(*dialled, server.admitted.pop());
    return {};
  }

  test::Authority own_{"own"}, rogue_{"rogue"};
};

TEST_F(TlsGate, CarriesBytesBothWays) {
  EXPECT_EQ(dial(of(own_, "server", own_), of(own_, "member", own_)), "");
}

TEST_F(TlsGate, AlsoWithASecret) {
  Credentials server = of(own_, "server", own_);
  Credentials member = of(own_, "member", own_);
  server.secret = member.secret = k_secret;
  EXPECT_EQ(dial(server, member), "");
  member.secret = "the secret of another one";
  EXPECT_NE(dial(server, member).find("secret"), std::string::npos);
}

TEST_F(TlsGate, AMemberOfAnotherAuthorityIsRefused) {
  EXPECT_NE(dial(of(own_, "server", own_), of(rogue_, "member", own_)), "");
}

TEST_F(TlsGate, AServerOfAnotherAuthorityIsNotBelieved) {
  EXPECT_NE(dial(of(rogue_, "server", own_), of(own_, "member", own_)).find("TLS"),
            std::string::npos);
}

TEST_F(TlsGate, AServerOfAnotherNameIsNotBelieved) {
  EXPECT_NE(dial(of(own_, "member", own_), of(own_, "member", own_)).find("TLS"),
            std::string::npos);
}

TEST_F(TlsGate, PlainAndTlsDoNotMeet) {
  const Credentials tls = of(own_, "server", own_);
  EXPECT_NE(dial(tls, {}), "");
  EXPECT_NE(dial({}, tls), "");
}

TEST_F(TlsGate, WhoLeavesAmidTheHandshakeIsNoIntruder) {
  Side server(of(own_, "server", own_));
  send_all(connect_raw(server.listening().at), std::string("\x16\x03\x01\x00\xc4\x01", 6));
  server.wait_refused(Refusal::timeout, 1);
  EXPECT_EQ(server.refused(Refusal::tls), 0U);
}

TEST_F(TlsGate, SeveralAuthoritiesMayBeTrusted) {
  Credentials server = of(own_, "server", own_);
  server.authority_pem = rogue_.pem() + own_.pem();
  EXPECT_EQ(dial(server, of(own_, "member", own_)), "");
}

TEST_F(TlsGate, CredentialsThatCannotBeUsedNameTheirField) {
  const Credentials good = of(own_, "server", own_);
  EXPECT_TRUE(check(good));
  const auto field_of = [](const Credentials& credentials) {
    const auto checked = check(credentials);
    return checked ? "none" : checked.error().field;
  };
  Credentials wrong = good;
  wrong.certificate_pem = "no certificate";
  EXPECT_EQ(field_of(wrong), "cluster-tls-cert");
  wrong = good;
  wrong.certificate_pem = "";
  EXPECT_EQ(field_of(wrong), "cluster-tls-cert") << "an empty file is no wish for no TLS";
  wrong = good;
  wrong.key_pem = "no key";
  EXPECT_EQ(field_of(wrong), "cluster-tls-key");
  wrong = good;
  wrong.key_pem = own_.issue("other").key_pem;
  EXPECT_EQ(field_of(wrong), "cluster-tls-key");
  for (const long hours : {-3, 3}) {
    const auto pair = own_.issue("server", hours);
    wrong = good;
    wrong.certificate_pem = pair.certificate_pem;
    wrong.key_pem = pair.key_pem;
    EXPECT_EQ(field_of(wrong), "cluster-tls-cert") << hours;
  }
  wrong = good;
  wrong.authority_pem = "";
  EXPECT_EQ(field_of(wrong), "cluster-tls-ca");
}

}  // namespace
}  // namespace outrider::cluster
