// Cap'n Proto messages as a connection would deliver them: any bytes are read as a GenerateRequest
// within the server's limits, and take the same way through validation as a JSON body.

#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/limits.hpp"
#include "gateway/request_parser.hpp"
#include "gateway/rpc_convert.hpp"

namespace {

using namespace outrider;

void require(bool holds) {
  if (!holds) std::abort();
}

void read_request(rpc::GenerateRequest::Reader request) {
  const auto kind = gateway::request_kind(request);
  gateway::JsonBudget budget;
  const auto json = gateway::request_json(request, budget);
  if (!json) {
    require(!json.error().field.empty());
    return;
  }
  const auto parsed = gateway::parse_request(kind, *json, budget);
  if (!parsed) {
    require(!parsed.error().message.empty());
    return;
  }
  require(parsed->generation.choices >= 1 && parsed->generation.choices <= limits::choices_max);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto words = kj::heapArray<capnp::word>(size / sizeof(capnp::word));
  std::memcpy(words.begin(), data, words.size() * sizeof(capnp::word));
  capnp::ReaderOptions options;
  options.traversalLimitInWords = limits::rpc_message_words_max;
  options.nestingLimit = limits::json_depth_max;
  // Broken pointers and exceeded limits are exceptions; the server answers them and goes on.
  [[maybe_unused]] auto refused = kj::runCatchingExceptions([&] {
    capnp::FlatArrayMessageReader message(words, options);
    read_request(message.getRoot<rpc::GenerateRequest>());
  });
  return 0;
}
