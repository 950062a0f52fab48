#include "tools/banner.hpp"

#include <algorithm>
#include <utility>

namespace outrider::tools {
namespace {

std::string host_of(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

bool is_everywhere(const std::string& host) {
  return host.empty() || host == "*" || host == "0.0.0.0" || host == "[::]";
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "[::1]";
}

/// The address that a client on this machine uses.
std::string from_here(const std::string& address) {
  const std::string host = host_of(address);
  return is_everywhere(host) ? "127.0.0.1" + address.substr(host.size()) : address;
}

std::string interfaces(const std::string& address) {
  return is_everywhere(host_of(address)) ? ", on all interfaces" : "";
}

/// An address and what answers there, in columns.
std::string line(std::string shown, const char* what, const std::string& address) {
  constexpr size_t k_column = 28;
  shown.resize(std::max(k_column, shown.size() + 1), ' ');
  return "  " + shown + what + interfaces(address) + "\n";
}

}  // namespace

std::string with_port(const std::string& address, uint16_t port) {
  return host_of(address) + ":" + std::to_string(port);
}

std::string banner(const std::string& model, const std::string& device,
                   const Listening& listening) {
  std::string text =
      "\nOutrider serves " + model + " (" + device + ")\n" +
      line("http://" + from_here(listening.http) + "/v1", "OpenAI wire", listening.http);
  if (!listening.rpc.empty()) text += line(from_here(listening.rpc), "Cap'n Proto", listening.rpc);
  text += "Try:\n  curl -N http://" + from_here(listening.http) +
          "/v1/chat/completions -H 'Content-Type: application/json'";
  if (listening.has_keys) text += " -H \"Authorization: Bearer $OUTRIDER_API_KEY\"";
  return text +
         " -d '{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}],"
         "\"temperature\":0,\"stream\":true}'\n";
}

std::vector<std::string> exposure_warnings(const Listening& listening) {
  std::vector<std::string> warnings;
  if (listening.has_keys) return warnings;
  for (const auto& [flag, address] :
       {std::pair("http", listening.http), std::pair("rpc", listening.rpc)}) {
    if (address.empty() || is_loopback(host_of(address))) continue;
    warnings.push_back(std::string(flag) + " listens on " + address + interfaces(address) +
                       ", without API keys: whoever reaches it can use it; see --api-key-file");
  }
  return warnings;
}

}  // namespace outrider::tools
