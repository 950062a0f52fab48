// Streams an answer over Cap'n Proto, in C++.
//
// Usage: rpc_client HOST:PORT PROMPT [API_KEY]

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/debug.h>

#include <iostream>

#include "schema/outrider.capnp.h"

namespace {

using namespace outrider;

/// Prints text as it comes. A sink that returns slowly slows its own request only.
class Printer final : public rpc::TokenSink::Server {
 public:
  kj::Promise<void> push(PushContext context) override {
    std::cout << context.getParams().getChunk().getText().cStr() << std::flush;
    return kj::READY_NOW;
  }
  kj::Promise<void> done(DoneContext) override { return kj::READY_NOW; }
};

void run(const char* address, const char* prompt, const char* key) {
  auto io = kj::setupAsyncIo();
  auto stream = io.provider->getNetwork()
                    .parseAddress(address)
                    .wait(io.waitScope)
                    ->connect()
                    .wait(io.waitScope);
  capnp::TwoPartyClient client(*stream);

  // A connection starts with a login; an empty key where the server has none.
  auto login = client.bootstrap().castAs<rpc::Login>().openRequest();
  login.setApiKey(key);
  kj::Promise<capnp::Response<rpc::Login::OpenResults>> opening = login.send();
  // Another kind of server may wait for us to say more.
  auto too_late =
      io.provider->getTimer()
          .afterDelay(5 * kj::SECONDS)
          .then([]() -> kj::Promise<capnp::Response<rpc::Login::OpenResults>> {
            return KJ_EXCEPTION(DISCONNECTED, "no answer in 5 s; is this the server's RPC port?");
          });
  auto opened = opening.exclusiveJoin(kj::mv(too_late)).wait(io.waitScope);
  rpc::Outrider::Client service = opened.getService();

  auto call = service.generateRequest();
  auto request = call.initRequest();
  auto message = request.initMessages(1)[0];
  message.setRole("user");
  message.setContent(prompt);
  request.setMaxTokens(64);
  request.setTemperature(0);
  call.setSink(kj::heap<Printer>());
  // Dropping this promise instead of waiting for it would cancel the request.
  const auto response = call.send().wait(io.waitScope);
  const auto usage = response.getResult().getUsage();
  std::cout << "\n[" << usage.getPromptTokens() << " + " << usage.getCompletionTokens()
            << " tokens, seed " << response.getResult().getSeed() << "]" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: rpc_client HOST:PORT PROMPT [API_KEY]\n";
    return 2;
  }
  const char* key = argc > 3 ? argv[3] : "";
  const auto failed = kj::runCatchingExceptions([&] { run(argv[1], argv[2], key); });
  KJ_IF_MAYBE (exception, failed) {
    // The text holds the same JSON object that HTTP would have sent.
    std::cerr << exception->getDescription().cStr() << '\n';
    return 1;
  }
  return 0;
}
