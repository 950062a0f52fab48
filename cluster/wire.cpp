#include "cluster/wire.hpp"

#include <caf/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/middleman_actor_impl.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "cluster/process_identity.hpp"
#include "schema/messages.hpp"

namespace outrider::cluster {
namespace {

using Multiplexer = caf::io::network::multiplexer;

/// CAF's port has no number: it is never listened on, and one process publishes one router.
constexpr uint16_t k_port = 1;

/// Where the sockets of a gate become connections of CAF's broker.
class Doorman final : public caf::io::doorman {
 public:
  explicit Doorman(Multiplexer& multiplexer)
      : doorman(caf::io::accept_handle::from_int(std::numeric_limits<int64_t>::max())),
        multiplexer_(multiplexer) {}

  /// On CAF's network thread.
  void take(kj::AutoCloseFd socket) {
    if (detached()) return;
    auto scribe = multiplexer_.new_scribe(socket.release());
    const auto connection = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    doorman::new_connection(&multiplexer_, connection);
  }

  bool new_connection() override { return false; }  // of a device; there is none
  void graceful_shutdown() override { detach(&multiplexer_, false); }
  void launch() override {}
  void add_to_loop() override {}
  void remove_from_loop() override {}
  std::string addr() const override { return {}; }
  uint16_t port() const override { return k_port; }

 private:
  Multiplexer& multiplexer_;
};

/// Handed from a gate to CAF's middleman.
class Sockets {
 public:
  /// The "host" by which a middleman gets it.
  std::string put(kj::AutoCloseFd socket) {
    const std::lock_guard lock(mutex_);
    std::string name = "gate-" + std::to_string(++count_);
    waiting_.emplace(name, kj::mv(socket));
    return name;
  }
  kj::AutoCloseFd take(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto found = waiting_.extract(name);
    return found.empty() ? kj::AutoCloseFd() : kj::mv(found.mapped());
  }

 private:
  std::mutex mutex_;
  uint64_t count_ = 0;
  std::map<std::string, kj::AutoCloseFd> waiting_;
};

/// Opens and connects nothing of its own.
class Middleman final : public caf::io::middleman_actor_impl {
 public:
  Middleman(caf::actor_config& config, caf::actor broker, std::shared_ptr<Sockets> sockets,
            caf::intrusive_ptr<Doorman> doorman)
      : middleman_actor_impl(config, std::move(broker)),
        sockets_(std::move(sockets)),
        doorman_(std::move(doorman)) {}

 protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& host, uint16_t) override {
    auto socket = sockets_->take(host);
    if (socket == nullptr) return caf::make_error(caf::sec::cannot_connect_to_node);
    return system().middleman().backend().new_scribe(socket.release());
  }
  caf::expected<caf::io::doorman_ptr> open(uint16_t, const char*, bool) override {
    return doorman_;
  }

 private:
  std::shared_ptr<Sockets> sockets_;
  caf::intrusive_ptr<Doorman> doorman_;
};

}  // namespace

struct Wire::Parts {
  caf::actor_system& system;
  std::shared_ptr<Gate> gate;
  bool listens = false;
  std::shared_ptr<Sockets> sockets = std::make_shared<Sockets>();
  caf::intrusive_ptr<Doorman> doorman;
  caf::io::middleman_actor middleman;
};

Wire::Wire(caf::actor_system& system, std::shared_ptr<Gate> gate)
    : parts_(std::make_unique<Parts>(Parts{.system = system, .gate = std::move(gate)})) {
  const std::string node = caf::to_string(system.node());
  OUTRIDER_CHECK(node.find('#' + std::to_string(process_identity())) != node.npos, node);
  caf::io::middleman& of_caf = system.middleman();
  parts_->doorman = caf::make_counted<Doorman>(of_caf.backend());
  parts_->middleman = system.spawn<Middleman, caf::detached + caf::hidden>(
      of_caf.named_broker<caf::io::basp_broker>(caf::atom("BASP")), parts_->sockets,
      parts_->doorman);
}

Wire::~Wire() {
  if (parts_->listens) parts_->gate->stop_listening();
  const caf::scoped_actor self(parts_->system, true);
  self->send_exit(parts_->middleman, caf::exit_reason::kill);
  self->wait_for(parts_->middleman);
}

Result<uint16_t> Wire::publish(const schema::RouterHandle& router, const Endpoint& endpoint) {
  auto ask = caf::make_function_view(parts_->middleman);
  caf::io::middleman& of_caf = parts_->system.middleman();
  const auto published =
      ask(caf::publish_atom_v, k_port, caf::actor_cast<caf::strong_actor_ptr>(router),
          parts_->system.message_types<schema::RouterHandle>(), std::string(), false);
  if (!published) {
    return fail(ErrorCode::internal, parts_->system.render(published.error()));
  }
  const auto admit = [&of_caf, doorman = parts_->doorman](kj::AutoCloseFd socket) {
    // CAF's queue wants what can be copied.
    auto shared = std::make_shared<kj::AutoCloseFd>(kj::mv(socket));
    of_caf.run_later([doorman, shared] { doorman->take(kj::mv(*shared)); });
  };
  uint16_t port = 0;
  OUTRIDER_ASSIGN(port, parts_->gate->listen(endpoint, admit));
  parts_->listens = true;
  return port;
}

Result<schema::RouterHandle> Wire::reach(const Endpoint& endpoint) {
  auto socket = parts_->gate->dial(endpoint);
  if (!socket) return socket.error();
  const std::string name = parts_->sockets->put(kj::mv(*socket));
  auto ask = caf::make_function_view(parts_->middleman);
  const auto found = ask(caf::connect_atom_v, name, k_port);
  parts_->sockets->take(name);  // where the middleman did not
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::unavailable, to_string(endpoint) + ": " + what);
  };
  if (!found) return wrong(parts_->system.render(found.error()));
  const auto& [node, actor, signatures] = *found;
  if (!actor) return wrong("no router is published there");
  if (!parts_->system.assignable(signatures,
                                 parts_->system.message_types<schema::RouterHandle>())) {
    return wrong("what is published there is no router of this release");
  }
  return caf::actor_cast<schema::RouterHandle>(actor);
}

}  // namespace outrider::cluster
