#include "cluster/router_link.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "cluster/wire.hpp"
#include "schema/messages.hpp"

namespace outrider::cluster {
namespace {

/// Far more than anything here takes: it bounds a failure.
constexpr auto k_link_patience = std::chrono::seconds(60);

template <class T>
class Queue {
 public:
  void push(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    filled_.notify_all();
  }
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, k_link_patience, [&] { return !items_.empty(); }))
      return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<T> items_;
};

struct Config : caf::actor_system_config {
  Config() {
    schema::add_messages(*this);
    load<caf::io::middleman>();
  }
};

std::shared_ptr<Gate> open_gate() {
  const auto log =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  auto opened = Gate::open({.credentials = {}, .log = log});
  return std::shared_ptr<Gate>(std::move(*opened));
}

/// A process with a router.
struct Server {
  std::shared_ptr<Queue<uint64_t>> heard = std::make_shared<Queue<uint64_t>>();
  std::shared_ptr<Gate> gate = open_gate();
  Config config;
  caf::actor_system system{config};
  Wire wire{system, gate};
  schema::RouterHandle router;

  Server() {
    router = system.spawn([heard = heard]() -> schema::RouterHandle::behavior_type {
      return {[](const schema::PlaceRequest&) {},
              [](const schema::Announce&) {},
              [heard](const schema::Load& load) { heard->push(load.sequence); },
              [](const schema::LeaseDraft&) {},
              [](const schema::EndLease&) {},
              [](const schema::ServesModel&) {},
              [](const schema::ListWorkers&) { return schema::WorkerList(); }};
    });
  }
  ~Server() { caf::anon_send_exit(router, caf::exit_reason::kill); }

  uint16_t publish(uint16_t port) {
    const auto got = wire.publish(router, {"127.0.0.1", port});
    EXPECT_TRUE(got) << got.error().message;
    return got ? *got : uint16_t{0};
  }
};

/// A process with a worker.
struct Member {
  std::shared_ptr<Queue<schema::RouterHandle>> found =
      std::make_shared<Queue<schema::RouterHandle>>();
  std::shared_ptr<Gate> gate = open_gate();
  Config config;
  caf::actor_system system{config};
  Wire wire{system, gate};
  RoutedHandle worker;
  RouterLink link;

  explicit Member(uint16_t port) {
    worker = system.spawn([found = found]() -> RoutedHandle::behavior_type {
      return {[found](const schema::RouterFound& message) { found->push(message.router); }};
    });
    const auto log =
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
    link = spawn_router_link(system, {&wire, {"127.0.0.1", port}, worker, log});
  }
  /// The link ends with it.
  ~Member() {
    caf::anon_send_exit(worker, caf::exit_reason::kill);
    const caf::scoped_actor self(system);
    self->wait_for(link);
  }

  /// That the next router to be found hears it.
  void expect_router(Server& server) {
    auto router = found->pop();
    ASSERT_TRUE(router);
    schema::Load load;
    load.sequence = ++sent;
    caf::anon_send(*router, load);
    EXPECT_EQ(server.heard->pop(), sent);
  }
  uint64_t sent = 0;
};

TEST(RouterLink, FindsARouterOfAnotherProcess) {
  Server server;
  Member member(server.publish(0));
  member.expect_router(server);
}

TEST(RouterLink, FindsItAgainAfterARestart) {
  auto server = std::make_unique<Server>();
  const uint16_t port = server->publish(0);
  Member member(port);
  member.expect_router(*server);
  for (int restart = 0; restart < 3; ++restart) {
    server.reset();
    server = std::make_unique<Server>();
    ASSERT_EQ(server->publish(port), port);
    member.expect_router(*server);
  }
}

TEST(RouterLink, WaitsForARouterThatComesLater) {
  auto server = std::make_unique<Server>();
  const uint16_t port = server->publish(0);
  server.reset();
  Member member(port);
  server = std::make_unique<Server>();
  ASSERT_EQ(server->publish(port), port);
  member.expect_router(*server);
}

TEST(RouterLink, EndsWithItsWorkerWhileNobodyListens) {
  auto server = std::make_unique<Server>();
  const uint16_t port = server->publish(0);
  server.reset();
  { const Member member(port); }
}

TEST(RouterLink, APortThatIsTakenIsAnError) {
  Server server;
  const uint16_t port = server.publish(0);
  Server second;
  const auto again = second.wire.publish(second.router, {"127.0.0.1", port});
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find(std::to_string(port)), std::string::npos);
}

}  // namespace
}  // namespace outrider::cluster
