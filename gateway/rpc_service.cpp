#include "gateway/rpc_service.hpp"

#include <kj/debug.h>

#include <utility>

#include "gateway/error_reply.hpp"
#include "gateway/request_fields.hpp"
#include "gateway/request_parser.hpp"
#include "gateway/rpc_convert.hpp"
#include "gateway/text.hpp"

namespace outrider::gateway {
namespace {

kj::Exception stopped() {
  return KJ_EXCEPTION(DISCONNECTED, "the server has stopped");
}

/// One running `generate`; owned by the promise of its call, so that a dropped call destroys it.
class GenerateCall {
 public:
  using Context = capnp::CallContext<rpc::Outrider::GenerateParams, rpc::Outrider::GenerateResults>;

  GenerateCall(kj::Own<RequestScope> scope, rpc::TokenSink::Client sink, Context context,
               kj::Timer& timer, uint32_t push_timeout_ms)
      : scope_(kj::mv(scope)),
        sink_(kj::mv(sink)),
        context_(kj::mv(context)),
        timer_(timer),
        push_timeout_ms_(push_timeout_ms) {}

  kj::Promise<void> run() {
    return generation().ready().then([this]() -> kj::Promise<void> {
      deltas_ = generation().take();
      next_ = 0;
      return push_deltas().then(
          [this]() -> kj::Promise<void> { return generation().finished() ? finish() : run(); });
    });
  }

 private:
  Generation& generation() { return scope_->generation(); }

  /// A client that never returns from a call is given up like one that reads no bytes.
  kj::Promise<void> bounded(kj::Promise<void> call) {
    auto timeout =
        timer_.afterDelay(push_timeout_ms_ * kj::MILLISECONDS).then([]() -> kj::Promise<void> {
          return KJ_EXCEPTION(DISCONNECTED, "the client takes no tokens");
        });
    return call.exclusiveJoin(kj::mv(timeout));
  }

  kj::Promise<void> push_deltas() {
    if (next_ == deltas_.size()) return kj::READY_NOW;
    auto request = sink_.pushRequest();
    write_chunk(deltas_[next_++], generation(), request.initChunk());
    return bounded(request.send()).then([this] { return push_deltas(); });
  }

  kj::Promise<void> finish() {
    if (generation().error()) {
      scope_->set_status(error_reply(*generation().error()).status);
      return rpc_exception(*generation().error(), generation().retry_after_ms());
    }
    scope_->set_status(200);
    auto request = sink_.doneRequest();
    write_result(generation(), scope_->id(), request.initResult());
    return bounded(request.send().ignoreResult()).then([this] {
      write_result(generation(), scope_->id(), context_.getResults().initResult());
    });
  }

  kj::Own<RequestScope> scope_;
  rpc::TokenSink::Client sink_;
  Context context_;
  kj::Timer& timer_;
  uint32_t push_timeout_ms_;
  std::vector<ChoiceDelta> deltas_;
  size_t next_ = 0;
};

class OutriderServer final : public rpc::Outrider::Server {
 public:
  OutriderServer(std::shared_ptr<RpcShared> shared, std::string tenant)
      : shared_(std::move(shared)), tenant_(std::move(tenant)) {}

  kj::Promise<void> generate(GenerateContext context) override {
    auto params = context.getParams();
    const RequestKind kind = request_kind(params.getRequest());
    auto scope =
        kj::heap<RequestScope>(serving(), Caller{serving().new_id("req-"), tenant_, "rpc"}, kind);
    if (auto started = start(*scope, kind, params.getRequest()); !started) {
      scope->set_status(error_reply(started.error()).status);
      return rpc_exception(started.error());
    }
    auto sink = params.getSink();
    context.releaseParams();
    context.allowCancellation();
    auto call = kj::heap<GenerateCall>(kj::mv(scope), kj::mv(sink), context, shared_->timer,
                                       shared_->settings.write_timeout_ms);
    auto run = call->run();
    return shared_->running.wrap(run.attach(kj::mv(call)));
  }

  kj::Promise<void> models(ModelsContext context) override {
    if (!serving().served()) return kj::READY_NOW;
    const auto& served = *serving().served();
    auto entry = context.getResults().initModels(1)[0];
    entry.setId(served.name.c_str());
    entry.setMaxModelLen(served.context_tokens);
    entry.setCreated(served.created_s);
    return kj::READY_NOW;
  }

  kj::Promise<void> health(HealthContext context) override {
    context.getResults().setStatus(to_string(serving().phase()));
    context.getResults().setVersion(serving().parts().version.c_str());
    return kj::READY_NOW;
  }

  kj::Promise<void> tokenize(TokenizeContext context) override {
    auto tokens = tokens_of(context.getParams().getInput());
    if (!tokens) return rpc_exception(tokens.error());
    auto results = context.getResults();
    auto list = results.initTokens(static_cast<capnp::uint>(tokens->size()));
    for (capnp::uint i = 0; i < tokens->size(); ++i) list.set(i, (*tokens)[i]);
    results.setMaxModelLen(serving().served()->context_tokens);
    return kj::READY_NOW;
  }

  kj::Promise<void> detokenize(DetokenizeContext context) override {
    if (auto admitted = serving().admit(); !admitted) return rpc_exception(admitted.error());
    std::vector<int32_t> ids;
    for (const int32_t id : context.getParams().getTokens()) ids.push_back(id);
    if (auto valid = check_token_ids(ids, "tokens", *serving().served()); !valid) {
      return rpc_exception(valid.error());
    }
    context.getResults().setText(decode(ids, *serving().served()).c_str());
    return kj::READY_NOW;
  }

 private:
  static Result<void> start(RequestScope& scope, RequestKind kind,
                            rpc::GenerateRequest::Reader request) {
    auto body = request_json(request);
    if (!body) return body.error();
    auto parsed = parse_request(kind, *body);
    if (!parsed) return parsed.error();
    return scope.start(std::move(*parsed));
  }

  Result<std::vector<int32_t>> tokens_of(rpc::TokenizeInput::Reader input) {
    OUTRIDER_TRY(serving().admit());
    const auto special = flag_of(input.getAddSpecialTokens());
    if (input.isPrompt()) {
      const auto text = input.getPrompt();
      return encode({text.begin(), text.size()}, special.value_or(true), *serving().served(),
                    "prompt");
    }
    auto raw = messages_json(input.getMessages());
    if (!raw) return raw.error();
    auto messages = normalise_messages(*raw);
    if (!messages) return messages.error();
    return chat_prompt_tokens(
        {*messages, Json(), Json(), input.getAddGenerationPrompt(), special.value_or(false)},
        *serving().served());
  }

  Serving& serving() {
    if (!shared_->serving) kj::throwFatalException(stopped());
    return *shared_->serving;
  }

  std::shared_ptr<RpcShared> shared_;
  std::string tenant_;
};

class LoginServer final : public rpc::Login::Server {
 public:
  explicit LoginServer(std::shared_ptr<RpcShared> shared) : shared_(std::move(shared)) {}

  kj::Promise<void> open(OpenContext context) override {
    const auto key = context.getParams().getApiKey();
    if (!shared_->serving) return stopped();
    auto tenant = shared_->serving->parts().keys.tenant_of({key.begin(), key.size()});
    if (!tenant) {
      return rpc_exception(fail(ErrorCode::unauthenticated, "a valid API key is needed"));
    }
    context.getResults().setService(kj::heap<OutriderServer>(shared_, std::move(*tenant)));
    return kj::READY_NOW;
  }

 private:
  std::shared_ptr<RpcShared> shared_;
};

}  // namespace

kj::Own<rpc::Login::Server> new_login(std::shared_ptr<RpcShared> shared) {
  return kj::heap<LoginServer>(std::move(shared));
}

kj::Exception rpc_exception(const Error& error, uint32_t retry_after_ms) {
  const bool busy = error.code == ErrorCode::overloaded || error.code == ErrorCode::unavailable;
  const std::string body = error_body(error_reply(error, retry_after_ms));
  return kj::Exception(busy ? kj::Exception::Type::OVERLOADED : kj::Exception::Type::FAILED,
                       "outrider", 0, kj::str(body.c_str()));
}

}  // namespace outrider::gateway
