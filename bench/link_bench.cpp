// What a tensor link moves: GB/s one way by size of message, over a socket pair and over loopback
// TCP, and the time of a round trip of 16 bytes. Beside it: what a core of this machine does of the
// work on each byte, XXH3 (once on either side) and a copy (the reader's; the kernel's come on
// top).
//   link_bench [--seconds 1] [--rounds 5]

#include <netinet/in.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/hash.hpp"
#include "link/tcp_link.hpp"

namespace outrider {
namespace {

using link::Bytes;
using link::OwnedFd;
using link::TcpLink;
using link::TensorLink;

constexpr size_t k_sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
constexpr TimePoint k_never = TimePoint::max();

struct Flags {
  double seconds = 1;
  uint32_t rounds = 5;
};

struct Pair {
  std::unique_ptr<TensorLink> a, b;
};

std::pair<OwnedFd, OwnedFd> socket_pair() {
  int ends[2] = {};
  OUTRIDER_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {OwnedFd(ends[0]), OwnedFd(ends[1])};
}

std::pair<OwnedFd, OwnedFd> loopback() {
  OwnedFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  OwnedFd near(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  OUTRIDER_CHECK(::bind(listener.get(), raw, size) == 0 && ::listen(listener.get(), 1) == 0);
  OUTRIDER_CHECK(::getsockname(listener.get(), raw, &size) == 0);
  OUTRIDER_CHECK(::connect(near.get(), raw, size) == 0);
  return {std::move(near), OwnedFd(::accept(listener.get(), nullptr, nullptr))};
}

Pair connect(std::pair<OwnedFd, OwnedFd> fds) {
  const link::LinkSetup setup{
      {}, std::make_shared<SteadyClock>(), std::make_shared<link::LinkCounters>()};
  auto a = TcpLink::open(std::move(fds.first), setup);
  auto b = TcpLink::open(std::move(fds.second), setup);
  return {std::move(a).value(), std::move(b).value()};
}

struct Spread {
  double median = 0, low = 0, high = 0;
};

template <class Round>
Spread spread(uint32_t rounds, Round round) {
  std::vector<double> values;
  for (uint32_t i = 0; i < rounds; ++i) values.push_back(round());
  std::ranges::sort(values);
  return {values[values.size() / 2], values.front(), values.back()};
}

/// GB/s of what `step` does to so many bytes.
template <class Step>
double rate(double seconds, size_t bytes, Step step) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  double moved = 0, took = 0;
  do {
    step();
    moved += static_cast<double>(bytes);
    took = to_seconds(clock.now() - begin);
  } while (took < seconds);
  return moved / took / 1e9;
}

double one_way(Pair& pair, double seconds, size_t size) {
  const Bytes bytes{std::vector<std::byte>(size, std::byte{7})};
  std::thread sender([&] {
    while (pair.a->send(0, {1, bytes}, k_never)) {
    }
  });
  // The first window fills queues and pages.
  for (size_t got = 0; got < (size_t{32} << 20); got += size) {
    OUTRIDER_CHECK(pair.b->receive(0, k_never).ok());
  }
  const double result =
      rate(seconds, size, [&] { OUTRIDER_CHECK(pair.b->receive(0, k_never).ok()); });
  pair.b->close();
  sender.join();
  return result;
}

double round_trip_us(Pair& pair, double seconds) {
  const Bytes bytes{std::vector<std::byte>(16)};
  std::thread echo([&] {
    while (auto message = pair.b->receive(1, k_never)) {
      if (!pair.b->send(1, std::move(*message), k_never)) return;
    }
  });
  const double per_second = 1e9 * rate(seconds, 1, [&] {
                              OUTRIDER_CHECK(pair.a->send(1, {1, bytes}, k_never).ok());
                              OUTRIDER_CHECK(pair.a->receive(1, k_never).ok());
                            });
  pair.a->close();
  echo.join();
  return 1e6 / per_second;
}

void print(const char* what, const Spread& s, const char* unit) {
  std::printf("%-28s %8.2f %s  (%.2f to %.2f)\n", what, s.median, unit, s.low, s.high);
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app{"What a tensor link moves"};
  app.add_option("--seconds", flags.seconds, "of each round")->capture_default_str();
  app.add_option("--rounds", flags.rounds, "of each case")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);

  std::vector<std::byte> from(256 << 10, std::byte{3}), to(from.size());
  uint64_t sum = 0;
  print("XXH3-128, 256 KiB",
        spread(flags.rounds,
               [&] { return rate(flags.seconds, from.size(), [&] { sum += hash128(from)[0]; }); }),
        "GB/s");
  print("copy, 256 KiB",
        spread(flags.rounds,
               [&] {
                 return rate(flags.seconds, from.size(), [&] {
                   std::memcpy(to.data(), from.data(), from.size());
                   sum += std::to_integer<uint8_t>(to[sum % to.size()]);
                 });
               }),
        "GB/s");
  for (const bool is_tcp : {false, true}) {
    const auto open = [&] { return connect(is_tcp ? loopback() : socket_pair()); };
    const std::string name = is_tcp ? "loopback TCP" : "socket pair";
    for (const size_t size : k_sizes) {
      const auto label = name + ", " + std::to_string(size >> 10) + " KiB";
      print(label.c_str(),
            spread(flags.rounds,
                   [&] {
                     Pair pair = open();
                     return one_way(pair, flags.seconds, size);
                   }),
            "GB/s");
    }
    print((name + ", round trip").c_str(),
          spread(flags.rounds,
                 [&] {
                   Pair pair = open();
                   return round_trip_us(pair, flags.seconds);
                 }),
          "us");
  }
  return sum == 1 ? 1 : 0;  // read, so that it is computed
}

}  // namespace
}  // namespace outrider

int main(int argc, char** argv) {
  return outrider::run(argc, argv);
}
