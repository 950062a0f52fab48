#pragma once

#include <kj/async-io.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "gateway/json_body.hpp"
#include "gateway/scripted_backend.test.hpp"

namespace outrider::gateway::testing_support {

constexpr const char* k_chat_path = "/v1/chat/completions";
constexpr const char* k_text_path = "/v1/completions";
/// The shortest body that /v1/completions takes.
constexpr const char* k_body = R"({"prompt":"hi"})";

struct RawResponse {
  int status = 0;                              ///< 0: the connection ended without an answer
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;

  Json json() const { return Json::parse(body, nullptr, false); }
  Json error() const { return json().value("error", Json()); }
};

/// HTTP/1.1 by hand over one connection, so that a test controls every byte.
class RawClient {
 public:
  explicit RawClient(LoopbackGateway& gateway) : gateway_(gateway) {
    stream_ = gateway.io.provider->getNetwork()
                  .parseAddress("127.0.0.1", gateway.gateway->http_port())
                  .wait(gateway.io.waitScope)
                  ->connect()
                  .wait(gateway.io.waitScope);
  }

  ~RawClient() noexcept = default;

  void send(std::string_view bytes) {
    stream_->write(bytes.data(), bytes.size()).wait(gateway_.io.waitScope);
  }
  void send_request(std::string_view method, std::string_view path, std::string_view body,
                    std::string_view headers = "") {
    std::string text = std::string(method) + " " + std::string(path) +
                       " HTTP/1.1\r\nHost: test\r\n" + std::string(headers);
    if (!body.empty() || method == "POST") {
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    }
    send(text + "\r\n" + std::string(body));
  }

  /// Bytes up to and with `mark`, or all that comes before the end.
  std::string read_until(std::string_view mark) {
    while (buffer_.find(mark) == std::string::npos && fill()) {
    }
    const auto at = buffer_.find(mark);
    const size_t size = at == std::string::npos ? buffer_.size() : at + mark.size();
    std::string out = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return out;
  }
  std::string read_all() {
    while (fill()) {
    }
    return std::exchange(buffer_, {});
  }

  RawResponse read_response() {
    RawResponse out;
    const std::string head = read_until("\r\n\r\n");
    if (head.size() < 12) return out;
    out.status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(':', at);
      if (colon == std::string::npos || colon > end) break;
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      out.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (out.headers.count("transfer-encoding")) {
      out.body = read_chunks();
    } else if (out.headers.count("content-length")) {
      const size_t size = std::strtoull(out.headers["content-length"].c_str(), nullptr, 10);
      while (buffer_.size() < size && fill()) {
      }
      out.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    }
    return out;
  }
  RawResponse request(std::string_view method, std::string_view path, std::string_view body = "",
                      std::string_view headers = "") {
    send_request(method, path, body, headers);
    return read_response();
  }

  /// One chunk of a chunked body; empty at its end.
  std::string read_chunk() {
    const std::string line = read_until("\r\n");
    const size_t size = std::strtoull(line.c_str(), nullptr, 16);
    while (buffer_.size() < size + 2 && fill()) {
    }
    std::string out = buffer_.substr(0, size);
    buffer_.erase(0, std::min(buffer_.size(), size + 2));
    return out;
  }
  std::string read_chunks() {
    std::string out;
    for (std::string part = read_chunk(); !part.empty(); part = read_chunk()) out += part;
    return out;
  }

  void close() { stream_ = nullptr; }
  void shutdown_write() { stream_->shutdownWrite(); }
  kj::AsyncIoStream& stream() { return *stream_; }

 private:
  bool fill() {
    char part[4096];
    size_t n = 0;
    auto broken = kj::runCatchingExceptions(
        [&] { n = stream_->tryRead(part, 1, sizeof(part)).wait(gateway_.io.waitScope); });
    if (broken != nullptr) n = 0;
    buffer_.append(part, n);
    return n > 0;
  }

  LoopbackGateway& gateway_;
  kj::Own<kj::AsyncIoStream> stream_;
  std::string buffer_;
};

/// The JSON of each `data:` event but [DONE].
inline std::vector<Json> sse_events(const std::string& body) {
  std::vector<Json> out;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    const std::string data = body.substr(at + 6, end - at - 6);
    if (data != "[DONE]") out.push_back(Json::parse(data, nullptr, false));
    at = end;
  }
  return out;
}

}  // namespace outrider::gateway::testing_support
