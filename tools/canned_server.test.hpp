#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace outrider::tools {

/// A port where connections wait that nobody accepts.
class ListeningPort {
 public:
  ListeningPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, plain, size), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
    EXPECT_EQ(::getsockname(socket_, plain, &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~ListeningPort() { ::close(socket_); }
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;

  int socket() const { return socket_; }
  const std::string& url() const { return url_; }

 private:
  int socket_;
  std::string url_;
};

/// Answers each connection with the next of its replies, once the head of a request is there, and
/// closes it: with what it has not read, a client that still sends is reset.
class CannedServer {
 public:
  struct Reply {
    unsigned status = 200;
    std::string body;
  };
  explicit CannedServer(std::vector<Reply> replies)
      : thread_([this, replies = std::move(replies)] {
          for (const Reply& reply : replies) answer(reply);
        }) {}
  ~CannedServer() {
    ::shutdown(port_.socket(), SHUT_RDWR);  // ends an accept
    thread_.join();
  }

  const std::string& url() const { return port_.url(); }

 private:
  void answer(const Reply& reply) const {
    const int connection = ::accept(port_.socket(), nullptr, nullptr);
    if (connection < 0) return;
    std::string request;
    char buffer[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t count = ::recv(connection, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      request.append(buffer, static_cast<size_t>(count));
    }
    const std::string text =
        "HTTP/1.1 " + std::to_string(reply.status) +
        " Reason\r\nConnection: close\r\nContent-Length: " + std::to_string(reply.body.size()) +
        "\r\n\r\n" + reply.body;
    ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    ::close(connection);
  }

  ListeningPort port_;
  std::thread thread_;
};

}  // namespace outrider::tools
