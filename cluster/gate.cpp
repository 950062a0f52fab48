#include "cluster/gate.hpp"

#include <kj/async-io.h>
#include <kj/timer.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/system.hpp"
#include "cluster/pump.hpp"
#include "cluster/tls.hpp"
#include "schema/exception_text.hpp"

namespace outrider::cluster {
namespace {

using Stream = kj::Own<kj::AsyncIoStream>;

/// What the other side has to be: OpenSSL says no more than that it failed.
constexpr const char* k_tls_doing =
    "TLS (it takes a server with --cluster-tls-cert, of an authority in cluster-tls-ca, for the "
    "name "
    "that was joined or cluster-tls-name, not expired): ";
constexpr uint64_t k_accepts_at_once = 4;
constexpr kj::Duration k_accept_pause = 1 * kj::MILLISECONDS;
/// Between two lines in the log on refusals of one kind.
constexpr Duration k_quiet = std::chrono::seconds(10);

kj::Exception refusal(const std::string& text,
                      kj::Exception::Type type = kj::Exception::Type::FAILED) {
  return {type, __FILE__, __LINE__, kj::heapString(text.c_str())};
}
/// Before it had said who it is. KJ says of a peer that leaves amid TLS what it says of a library's
/// failure, and has no type for either.
bool hung_up(const kj::Exception& exception, Refusal failing) {
  const bool is_tls = failing == Refusal::tls;
  if (!is_tls && failing != Refusal::protocol) return false;
  return exception.getType() == kj::Exception::Type::DISCONNECTED ||
         (is_tls && exception.getDescription() == "SSL unable to continue I/O");
}
/// Somebody is there, and will say the same to the next try.
constexpr auto k_lasting = kj::Exception::Type::UNIMPLEMENTED;

const char* explain(Refusal refusal) {
  switch (refusal) {
    case Refusal::version:
      return "it speaks another version of the cluster's protocol: run the same release";
    case Refusal::secret:
      return "the two cluster secrets differ, or one side has none: give both the same "
             "--cluster-secret-file";
    case Refusal::full:
      return "as many members as it takes are connected already";
    case Refusal::none:
    case Refusal::protocol:
    case Refusal::tls:
    case Refusal::timeout:
    case Refusal::frame:
      break;
  }
  return "it refused this process";
}

struct Counters {
  std::atomic<uint32_t> connected{0};
  std::atomic<uint32_t> line_ends{0};
  std::array<std::atomic<uint64_t>, k_refusals> refused{};
};

/// A connection until both sides have proved who they are.
struct Caller {
  Stream stream;
  std::string peer;
  kj::Own<kj::PromiseFulfiller<void>> evict;
  Refusal failing = Refusal::protocol;  ///< What it is, should the next thing fail.
  const char* doing = "";               ///< The same for people.
  bool is_connected = false;
  OpeningBytes opening{};
  Exchange exchange;
  Digest256 proof{};
  std::array<uint8_t, k_verdict_bytes> verdict{};
  LineToken line{};
};

/// Who speaks another protocol may never send as many bytes as an opening has: it is known by the
/// first.
kj::Promise<Opening> read_opening(Caller& c, const char* if_unknown) {
  constexpr uint8_t k_tls_hello = 0x16;  // RFC 8446, 5.1: what a client's first record is of
  return c.stream->read(c.opening.data(), k_magic_bytes)
      .then([&c, if_unknown] {
        if (!is_magic(std::span(c.opening).first<k_magic_bytes>())) {
          kj::throwFatalException(refusal(
              c.opening[0] == k_tls_hello ? "it speaks TLS, this port has none" : if_unknown));
        }
        return c.stream->read(c.opening.data() + k_magic_bytes, k_opening_bytes - k_magic_bytes);
      })
      .then([&c, if_unknown] {
        const auto opening = decode_opening(c.opening);
        if (!opening) kj::throwFatalException(refusal(if_unknown));
        return *opening;
      });
}

/// Both ends of a connection inside this process.
std::pair<kj::AutoCloseFd, kj::AutoCloseFd> make_pair() {
  int ends[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    kj::throwFatalException(refusal(std::strerror(errno)));
  }
  return {kj::AutoCloseFd(ends[0]), kj::AutoCloseFd(ends[1])};
}

/// For KJ, where nothing means all interfaces.
std::string address_text(const Endpoint& endpoint) {
  return (endpoint.host.empty() ? "*" : "") + to_string(endpoint);
}

/// All that happens on the gate's thread.
class Loop final : public kj::TaskSet::ErrorHandler {
 public:
  Loop(kj::AsyncIoContext& io, const Gate::Setup& setup, kj::Own<kj::TlsContext> tls,
       Counters& counters)
      : io_(io),
        setup_(setup),
        tls_(kj::mv(tls)),
        counters_(counters),
        greetings_(kj::heap<kj::TaskSet>(*this)),
        members_(*this) {}

  kj::Promise<uint16_t> listen(const Endpoint& endpoint, Gate::Admit admit) {
    return network()
        .parseAddress(address_text(endpoint).c_str())
        .then([this, admit = std::move(admit)](kj::Own<kj::NetworkAddress> address) mutable {
          port_ = address->listen();
          admit_ = std::move(admit);
          accepting_ = accept_loop().eagerlyEvaluate(nullptr);
          return static_cast<uint16_t>(port_->getPort());
        });
  }

  void stop_listening() {
    accepting_ = nullptr;
    greetings_ = nullptr;
    admit_ = nullptr;
    port_ = nullptr;
  }

  /// Without a line: for actors.
  kj::Promise<kj::AutoCloseFd> dial(const Endpoint& endpoint, const LineToken* line) {
    auto caller = kj::heap<Caller>();
    Caller& c = *caller;
    if (line != nullptr) {
      c.exchange.purpose = Purpose::line;
      c.line = *line;
    }
    const std::string& name = setup_.credentials.tls_name;
    auto done = network()
                    .parseAddress(to_string(endpoint).c_str())
                    .then([](kj::Own<kj::NetworkAddress> address) { return address->connect(); })
                    .then([this, &c, host = name.empty() ? endpoint.host : name](Stream stream) {
                      c.is_connected = true;
                      if (tls_.get() == nullptr) return kj::Promise<Stream>(kj::mv(stream));
                      c.doing = k_tls_doing;
                      return tls_->wrapClient(kj::mv(stream), host.c_str());
                    })
                    .then([this, &c](Stream stream) { return introduce(c, kj::mv(stream)); })
                    .then([this, &c]() -> kj::Promise<kj::AutoCloseFd> {
                      if (c.exchange.purpose == Purpose::actors) {
                        return connect(kj::mv(c.stream), c.peer, true);
                      }
                      return c.stream->write(c.line.data(), c.line.size()).then([this, &c] {
                        auto [own, theirs] = make_pair();
                        splice(kj::mv(c.stream), wrap(kj::mv(own)));
                        return kj::mv(theirs);
                      });
                    });
    auto text = to_string(endpoint);
    return timer()
        .timeoutAfter(limits::cluster_handshake_ms * kj::MILLISECONDS, kj::mv(done))
        .catch_([this, &c, text](kj::Exception&& exception) -> kj::Promise<kj::AutoCloseFd> {
          const bool late = exception.getType() == kj::Exception::Type::OVERLOADED;
          const std::string why = tls_.get() == nullptr
                                      ? schema::reason_of(exception)
                                      : exception.getDescription().cStr();  // OpenSSL's, too
          return refusal(text + ": " + c.doing + (late ? "no answer in time" : why),
                         c.is_connected && !late ? k_lasting : kj::Exception::Type::FAILED);
        })
        .attach(kj::mv(caller));
  }

  kj::AutoCloseFd own_line(const LineToken& token) {
    if (is_full(Purpose::line)) kj::throwFatalException(refusal(explain(Refusal::full)));
    auto [own, theirs] = make_pair();
    join(token, wrap(kj::mv(own)));
    return kj::mv(theirs);
  }

 private:
  kj::Network& network() { return io_.provider->getNetwork(); }
  kj::Timer& timer() { return io_.provider->getTimer(); }

  kj::Promise<void> accept_loop() {
    // Without descriptors KJ's accept() throws before there is a promise.
    return kj::evalNow([this] { return port_->acceptAuthenticated(); })
        .then([this](kj::AuthenticatedStream accepted) -> kj::Promise<void> {
          receive(kj::mv(accepted));
          // KJ looks at other sockets and at the clock only when nothing is left to do: a flood of
          // connections must not keep members waiting.
          if (++accepted_ % k_accepts_at_once != 0) return kj::READY_NOW;
          return timer().afterDelay(k_accept_pause);
        })
        .catch_([this](kj::Exception&&) {
          return timer().afterDelay(limits::accept_pause_ms * kj::MILLISECONDS);
        })
        .then([this] { return accept_loop(); });
  }

  void receive(kj::AuthenticatedStream accepted) {
    if (callers_.size() >= limits::cluster_callers_max) {
      const auto stranger = least_likely_member();
      (*stranger)->evict->fulfill();
      callers_.erase(stranger);
    }
    auto caller = kj::heap<Caller>();
    Caller& c = *caller;
    c.peer = accepted.peerIdentity->toString().cStr();
    auto evicted = kj::newPromiseAndFulfiller<void>();
    c.evict = kj::mv(evicted.fulfiller);
    auto greeted =
        timer()
            .timeoutAfter(limits::cluster_handshake_ms * kj::MILLISECONDS,
                          kj::evalNow([&] { return welcome(c, kj::mv(accepted.stream)); }))
            .catch_([this, &c](kj::Exception&& exception) {
              const bool late = exception.getType() == kj::Exception::Type::OVERLOADED;
              if (late || hung_up(exception, c.failing)) return refuse(Refusal::timeout, c.peer);
              const bool has_reason = c.failing == Refusal::tls || c.failing == Refusal::protocol;
              refuse(c.failing, c.peer, has_reason ? exception.getDescription().cStr() : "");
            })
            .exclusiveJoin(evicted.promise.then([this, &c] { refuse(Refusal::full, c.peer); }))
            .attach(kj::defer([this, &c] { callers_.remove(&c); }), kj::mv(caller));
    callers_.push_back(&c);
    greetings_->add(kj::mv(greeted));
  }

  /// Of the address that has most callers, who waits longest: a member that is alive answers at
  /// once. That it has opened says nothing of it: anybody can.
  std::list<Caller*>::iterator least_likely_member() {
    const auto host = [](const Caller* c) {
      return std::string_view(c->peer).substr(0, c->peer.rfind(':'));
    };
    std::map<std::string_view, size_t> of_host;
    for (const Caller* c : callers_) ++of_host[host(c)];
    return std::ranges::max_element(callers_, {},
                                    [&](const Caller* c) { return of_host[host(c)]; });
  }

  /// The server's side of handshake.hpp.
  kj::Promise<void> welcome(Caller& c, Stream raw) {
    c.failing = Refusal::tls;
    return secured(kj::mv(raw))
        .then([&c](Stream stream) {
          c.stream = kj::mv(stream);
          c.failing = Refusal::protocol;
          return read_opening(c, "unknown first bytes");
        })
        .then([this, &c](Opening opening) {
          const Purpose purpose = opening.purpose;
          c.failing = opening.version != k_wire_version ? Refusal::version
                      : is_full(purpose)                ? Refusal::full
                                                        : Refusal::none;
          c.exchange = {purpose, opening.nonce, random_nonce()};
          c.opening = encode({k_wire_version, c.failing, purpose, c.exchange.server});
          return c.stream->write(c.opening.data(), c.opening.size());
        })
        .then([&c] {
          if (c.failing != Refusal::none) kj::throwFatalException(refusal("told"));
          c.failing = Refusal::protocol;
          return c.stream->read(c.proof.data(), c.proof.size());
        })
        .then([this, &c] {
          const std::string& secret = setup_.credentials.secret;
          const bool knows = constant_time_equal(c.proof, c.exchange.member_proof(secret));
          const Digest256 own = knows ? c.exchange.server_proof(secret) : Digest256{};
          const Refusal verdict = !knows                        ? Refusal::secret
                                  : is_full(c.exchange.purpose) ? Refusal::full
                                                                : Refusal::none;
          c.verdict[0] = static_cast<uint8_t>(verdict);
          std::copy(own.begin(), own.end(), c.verdict.begin() + 1);
          return c.stream->write(c.verdict.data(), c.verdict.size()).then([verdict] {
            return verdict;
          });
        })
        .then([this, &c](Refusal verdict) -> kj::Promise<void> {
          if (verdict != Refusal::none) {
            c.failing = verdict;
            kj::throwFatalException(refusal("told"));
          }
          if (c.exchange.purpose == Purpose::actors) {
            admit_(connect(kj::mv(c.stream), c.peer, false));
            return kj::READY_NOW;
          }
          return c.stream->read(c.line.data(), c.line.size()).then([this, &c] {
            if (is_full(Purpose::line)) {
              c.failing = Refusal::full;
              kj::throwFatalException(refusal("too many came at once"));
            }
            join(c.line, kj::mv(c.stream));
          });
        });
  }

  bool is_full(Purpose purpose) const {
    return purpose == Purpose::line ? counters_.line_ends >= limits::cluster_line_ends_max
                                    : counters_.connected >= limits::cluster_connections_max;
  }

  /// An end of a line is here: its other end is, or is waited for.
  void join(const LineToken& token, Stream end) {
    ++counters_.line_ends;
    end = end.attach(kj::defer([this] { --counters_.line_ends; }));
    const auto other = ends_.find(token);
    if (other != ends_.end()) {
      auto stream = kj::mv(other->second.stream);
      ends_.erase(other);
      return splice(kj::mv(stream), kj::mv(end));
    }
    const uint64_t number = ++line_ends_seen_;
    ends_.emplace(token, LineEnd{kj::mv(end), number});
    members_.add(timer()
                     .afterDelay(limits::cluster_line_wait_ms * kj::MILLISECONDS)
                     .then([this, token, number] {
                       const auto found = ends_.find(token);
                       if (found != ends_.end() && found->second.number == number) {
                         ends_.erase(found);
                       }
                     }));
  }

  void splice(Stream a, Stream b) {
    auto there = kj::heap<Pump>(*a, *b, timer(), true);
    auto back = kj::heap<Pump>(*b, *a, timer(), true);
    members_.add(kj::evalNow([&] { return there->run().exclusiveJoin(back->run()); })
                     .ignoreResult()
                     .attach(kj::mv(there), kj::mv(back), kj::mv(a), kj::mv(b)));
  }

  Stream wrap(kj::AutoCloseFd fd) { return io_.lowLevelProvider->wrapSocketFd(kj::mv(fd)); }

  kj::Promise<Stream> secured(Stream raw) {
    if (tls_.get() == nullptr) return kj::mv(raw);
    return tls_->wrapServer(kj::mv(raw));
  }

  /// The member's side.
  kj::Promise<void> introduce(Caller& c, Stream stream) {
    c.doing = tls_.get() == nullptr
                  ? "what listens there is no cluster port (serve --cluster), or one with TLS, or "
                    "stands still: "
                  : "TLS: it does not take this process's certificate (cluster-tls-cert), or has "
                    "no TLS: ";
    c.stream = kj::mv(stream);
    c.exchange.member = random_nonce();
    c.opening = encode({k_wire_version, Refusal::none, c.exchange.purpose, c.exchange.member});
    return c.stream->write(c.opening.data(), c.opening.size())
        .then([&c] { return read_opening(c, "it answers something else"); })
        .then([this, &c](Opening opening) {
          c.doing = "";
          // Who sent a verdict is not known yet, but what it says is that no proof is wanted.
          if (opening.verdict != Refusal::none) {
            kj::throwFatalException(refusal(explain(opening.verdict)));
          }
          c.exchange.server = opening.nonce;
          c.proof = c.exchange.member_proof(setup_.credentials.secret);
          return c.stream->write(c.proof.data(), c.proof.size());
        })
        .then([&c] { return c.stream->read(c.verdict.data(), c.verdict.size()); })
        .then([this, &c] {
          Digest256 proof;
          std::copy(c.verdict.begin() + 1, c.verdict.end(), proof.begin());
          const Digest256 expected = c.exchange.server_proof(setup_.credentials.secret);
          if (!constant_time_equal(proof, expected)) {
            kj::throwFatalException(refusal(explain(Refusal::secret)));
          }
          if (c.verdict[0] != 0) kj::throwFatalException(refusal(explain(Refusal::full)));
        });
  }

  /// What the actors get of a connection.
  kj::AutoCloseFd connect(Stream remote, const std::string& peer, bool to_server) {
    auto [own, theirs] = make_pair();
    auto local = wrap(kj::mv(own));
    auto in = kj::heap<Incoming>(*remote, *local, timer(), to_server);
    auto out = kj::heap<Pump>(*local, *remote, timer(), false);  // the actors' own affair
    ++counters_.connected;
    auto counted = kj::defer([this] { --counters_.connected; });
    // A connection that is broken already makes KJ's reads throw before there is a promise.
    members_.add(
        kj::evalNow([&] { return in->run().exclusiveJoin(out->run()); })
            .then([this, peer, &frames = *in](bool good) {
              if (!good) refuse(Refusal::frame, peer + ", which sent " + frames.why());
            })
            .attach(kj::mv(in), kj::mv(out), kj::mv(remote), kj::mv(local), kj::mv(counted)));
    return kj::mv(theirs);
  }

  void refuse(Refusal reason, const std::string& peer, const char* why = "") {
    if (reason == Refusal::none) reason = Refusal::protocol;  // it hung up on an answer
    const auto kind = static_cast<size_t>(reason);
    const uint64_t count = ++counters_.refused[kind];
    const TimePoint at = clock_.now();
    if (count > 1 && at < quiet_until_[kind]) return;
    quiet_until_[kind] = at + k_quiet;
    setup_.log->warn("cluster: refused {}: {} ({} so far){}{}", peer, to_string(reason), count,
                     *why == '\0' ? "" : ": ", why);
  }

  /// A connection that breaks is everyday life.
  void taskFailed(kj::Exception&&) override {}

  kj::AsyncIoContext& io_;
  const Gate::Setup& setup_;
  SteadyClock clock_;
  kj::Own<kj::TlsContext> tls_;  ///< Null: none.
  Counters& counters_;
  std::array<TimePoint, k_refusals> quiet_until_{};
  kj::Own<kj::ConnectionReceiver> port_;
  Gate::Admit admit_;
  /// One that waits for the other.
  struct LineEnd {
    Stream stream;
    uint64_t number = 0;
  };
  std::map<LineToken, LineEnd> ends_;
  uint64_t line_ends_seen_ = 0;
  uint64_t accepted_ = 0;
  std::list<Caller*> callers_;  ///< Those who greet, the oldest first.
  kj::Own<kj::TaskSet> greetings_;
  kj::TaskSet members_;
  kj::Promise<void> accepting_ = nullptr;
};

}  // namespace

struct Gate::Thread {
  Setup setup;
  kj::Own<kj::TlsContext> tls;  ///< Null: none.
  Counters counters;
  kj::Own<const kj::Executor> executor;
  Loop* loop = nullptr;
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> stop;
  std::thread runs;

  void run(std::promise<void>& started) {
    name_this_thread("cluster port");
    auto io = kj::setupAsyncIo();
    io.waitScope.setBusyPollInterval(limits::cluster_events_in_a_row);
    Loop on_this_thread(io, setup, kj::mv(tls), counters);
    auto stopping = kj::newPromiseAndCrossThreadFulfiller<void>();
    executor = kj::getCurrentThreadExecutor().addRef();
    loop = &on_this_thread;
    stop = kj::mv(stopping.fulfiller);
    started.set_value();
    stopping.promise.wait(io.waitScope);
  }
};

Gate::Gate(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}

Result<std::unique_ptr<Gate>> Gate::open(Setup setup) {
  auto thread = std::make_unique<Thread>();
  if (setup.credentials.has_tls()) {
    auto made = make_tls(setup.credentials);
    if (!made) return made.error();
    thread->tls = kj::mv(*made);
  }
  thread->setup = std::move(setup);
  std::promise<void> started;
  thread->runs = std::thread([&] { thread->run(started); });
  started.get_future().wait();
  return std::unique_ptr<Gate>(new Gate(std::move(thread)));
}

Gate::~Gate() {
  thread_->stop->fulfill();
  thread_->runs.join();
}

Result<uint16_t> Gate::listen(const Endpoint& endpoint, Admit admit) {
  uint16_t port = 0;
  const auto thrown = kj::runCatchingExceptions([&] {
    port = thread_->executor->executeSync(
        [&] { return thread_->loop->listen(endpoint, std::move(admit)); });
  });
  KJ_IF_MAYBE (exception, thrown) {
    return fail(ErrorCode::unavailable,
                "cannot listen on " + to_string(endpoint) + ": " + schema::reason_of(*exception));
  }
  return port;
}

void Gate::stop_listening() {
  thread_->executor->executeSync([&] { thread_->loop->stop_listening(); });
}

Result<kj::AutoCloseFd> Gate::dial(const Endpoint& endpoint) {
  return dial(endpoint, nullptr);
}

Result<kj::AutoCloseFd> Gate::dial_line(const Endpoint& endpoint, const LineToken& token) {
  return dial(endpoint, &token);
}

Result<kj::AutoCloseFd> Gate::dial(const Endpoint& endpoint, const LineToken* line) {
  kj::AutoCloseFd socket;
  const auto thrown = kj::runCatchingExceptions([&] {
    socket = thread_->executor->executeSync([&] { return thread_->loop->dial(endpoint, line); });
  });
  KJ_IF_MAYBE (exception, thrown) {
    const bool lasts = exception->getType() == k_lasting;
    return fail(lasts ? ErrorCode::invalid_argument : ErrorCode::unavailable,
                exception->getDescription().cStr());
  }
  return kj::mv(socket);
}

Result<kj::AutoCloseFd> Gate::own_line(const LineToken& token) {
  kj::AutoCloseFd socket;
  const auto thrown = kj::runCatchingExceptions([&] {
    socket = thread_->executor->executeSync([&] { return thread_->loop->own_line(token); });
  });
  KJ_IF_MAYBE (exception, thrown) {
    return fail(ErrorCode::unavailable, exception->getDescription().cStr());
  }
  return kj::mv(socket);
}

GateCounters Gate::counters() const {
  GateCounters counters;
  counters.connected = thread_->counters.connected;
  counters.line_ends = thread_->counters.line_ends;
  for (size_t i = 0; i < k_refusals; ++i) counters.refused[i] = thread_->counters.refused[i];
  return counters;
}

}  // namespace outrider::cluster
