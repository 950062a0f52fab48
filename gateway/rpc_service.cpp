#include "gateway/rpc_service.hpp"

#include <capnp/message.h>
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

/// Parameters of a call, copied so that they can be read while the call may end.
using Copy = std::shared_ptr<capnp::MallocMessageBuilder>;

template <class T>
Copy copy_of(typename T::Reader reader) {
  auto copy = std::make_shared<capnp::MallocMessageBuilder>();
  copy->setRoot(reader);
  return copy;
}

size_t bytes_of(capnp::MallocMessageBuilder& message) {
  return message.sizeInWords() * sizeof(capnp::word);
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
      auto result = context_.getResults().initResult();
      write_result(generation(), scope_->id(), result);
      write_prompts(generation(), result);
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
    const auto request = copy_of<rpc::GenerateRequest>(params.getRequest());
    auto sink = params.getSink();
    context.releaseParams();
    context.allowCancellation();
    Caller caller{serving().new_id("req-"), tenant_, "rpc", "", serving().parts().clock.now()};
    auto scope = kj::heap<RequestScope>(serving(), std::move(caller), kind);
    auto started = scope->start(bytes_of(*request), [kind, request] {
      return parse(kind, request->getRoot<rpc::GenerateRequest>());
    });
    return shared_->running.wrap(started.then([scope = kj::mv(scope), sink = kj::mv(sink), context,
                                               shared = shared_]() mutable -> kj::Promise<void> {
      if (scope->error()) {
        scope->set_status(error_reply(*scope->error()).status);
        return rpc_exception(*scope->error());
      }
      auto call = kj::heap<GenerateCall>(kj::mv(scope), kj::mv(sink), context, shared->timer,
                                         shared->settings.write_timeout_ms);
      auto run = call->run();
      return run.attach(kj::mv(call));
    }));
  }

  kj::Promise<void> models(ModelsContext context) override {
    const ServedModels& models = serving().served();
    auto entries = context.getResults().initModels(static_cast<capnp::uint>(models.size()));
    for (capnp::uint i = 0; i < models.size(); ++i) {
      entries[i].setId(as_capnp(models[i]->name));
      entries[i].setMaxModelLen(models[i]->context_tokens);
      entries[i].setCreated(models[i]->created_s);
    }
    return kj::READY_NOW;
  }

  kj::Promise<void> health(HealthContext context) override {
    context.getResults().setStatus(to_string(serving().phase()));
    context.getResults().setVersion(as_capnp(serving().parts().version));
    return kj::READY_NOW;
  }

  kj::Promise<void> tokenize(TokenizeContext context) override {
    if (auto admitted = serving().admit(); !admitted) return rpc_exception(admitted.error());
    const auto input = copy_of<rpc::TokenizeInput>(context.getParams().getInput());
    const auto found = served_for(context.getParams().getInput().getModel());
    if (!found) return rpc_exception(found.error());
    context.allowCancellation();
    std::function<Result<std::vector<int32_t>>()> encode_input =
        [input, served = *found, now = serving().parts().wall_time()] {
          return tokens_of(input->getRoot<rpc::TokenizeInput>(), *served, now);
        };
    return work(bytes_of(*input), std::move(encode_input),
                [context, served = *found](std::vector<int32_t> tokens) mutable {
                  auto results = context.getResults();
                  auto list = results.initTokens(static_cast<capnp::uint>(tokens.size()));
                  for (capnp::uint i = 0; i < tokens.size(); ++i) list.set(i, tokens[i]);
                  results.setMaxModelLen(served->context_tokens);
                });
  }

  kj::Promise<void> detokenize(DetokenizeContext context) override {
    if (auto admitted = serving().admit(); !admitted) return rpc_exception(admitted.error());
    const auto found = served_for(context.getParams().getModel());
    if (!found) return rpc_exception(found.error());
    std::vector<int32_t> ids;
    for (const int32_t id : context.getParams().getTokens()) ids.push_back(id);
    context.allowCancellation();
    const size_t bytes = ids.size() * sizeof(int32_t);
    std::function<Result<std::string>()> decode_ids = [ids = std::move(ids),
                                                       served = *found]() -> Result<std::string> {
      OUTRIDER_TRY(check_token_ids(ids, "tokens", *served));
      return decode(ids, *served);
    };
    return work(bytes, std::move(decode_ids), [context](std::string text) mutable {
      context.getResults().setText(as_capnp(text));
    });
  }

  kj::Promise<void> resetPrefixCache(ResetPrefixCacheContext context) override {
    const Caller caller{serving().new_id("req-"), tenant_, "rpc", "",
                        serving().parts().clock.now()};
    const bool cold = context.getParams().getCold();
    context.allowCancellation();
    return shared_->running.wrap(
        serving()
            .reset_cache(caller, cold)
            .then([context](Result<CacheResetDone> done) mutable -> kj::Promise<void> {
              if (!done) return rpc_exception(done.error());
              auto results = context.getResults();
              results.setBlocks(done->blocks);
              results.setBlocksInUse(done->blocks_in_use);
              results.setColdBlocks(done->cold_blocks.value_or(0));
              return kj::READY_NOW;
            }));
  }

 private:
  Result<std::shared_ptr<const ServedModel>> served_for(capnp::Text::Reader model) {
    return find_served(serving().served(), {model.begin(), model.size()});
  }

  static Result<ParsedRequest> parse(RequestKind kind, rpc::GenerateRequest::Reader request) {
    JsonBudget budget;
    auto body = request_json(request, budget);
    if (!body) return body.error();
    return parse_request(kind, *body, budget);
  }

  static Result<std::vector<int32_t>> tokens_of(rpc::TokenizeInput::Reader input,
                                                const ServedModel& served, UnixTime now) {
    const auto special = flag_of(input.getAddSpecialTokens());
    if (input.isPrompt()) {
      const auto text = input.getPrompt();
      return encode({text.begin(), text.size()}, special.value_or(true), served, "prompt");
    }
    JsonBudget budget;
    auto raw = messages_json(input.getMessages(), budget);
    if (!raw) return raw.error();
    auto messages = normalise_messages(*raw, budget);
    if (!messages) return messages.error();
    ParsedRequest chat;
    chat.messages = std::move(*messages);
    chat.add_generation_prompt = input.getAddGenerationPrompt();
    chat.add_special_tokens = special;
    return chat_prompt_tokens(chat, served, now);
  }

  /// Runs `job` where it holds nobody up, then `answer` with its value; an error is the call's.
  template <class T, class Answer>
  kj::Promise<void> work(size_t bytes, std::function<Result<T>()> job, Answer answer) {
    auto done = serving().texts().run(tenant_, bytes, std::move(job));
    return shared_->running.wrap(done.then(
        [answer = std::move(answer)](kj::Own<Result<T>> result) mutable -> kj::Promise<void> {
          if (!*result) return rpc_exception(result->error());
          answer(std::move(**result));
          return kj::READY_NOW;
        }));
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
  LoginServer(std::shared_ptr<RpcShared> shared, std::shared_ptr<bool> done)
      : shared_(std::move(shared)), done_(std::move(done)) {}

  kj::Promise<void> open(OpenContext context) override {
    const auto key = context.getParams().getApiKey();
    if (!shared_->serving) return stopped();
    auto tenant = shared_->serving->parts().keys.tenant_of({key.begin(), key.size()});
    if (!tenant) {
      return rpc_exception(fail(ErrorCode::unauthenticated, "a valid API key is needed"));
    }
    context.getResults().setService(kj::heap<OutriderServer>(shared_, std::move(*tenant)));
    *done_ = true;
    return kj::READY_NOW;
  }

 private:
  std::shared_ptr<RpcShared> shared_;
  std::shared_ptr<bool> done_;
};

}  // namespace

kj::Own<rpc::Login::Server> new_login(std::shared_ptr<RpcShared> shared,
                                      std::shared_ptr<bool> done) {
  return kj::heap<LoginServer>(std::move(shared), std::move(done));
}

kj::Exception rpc_exception(const Error& error, uint32_t retry_after_ms) {
  const bool busy = error.code == ErrorCode::overloaded || error.code == ErrorCode::unavailable;
  const std::string body = error_body(error_reply(error, retry_after_ms));
  return kj::Exception(busy ? kj::Exception::Type::OVERLOADED : kj::Exception::Type::FAILED,
                       "outrider", 0, kj::str(body.c_str()));
}

}  // namespace outrider::gateway
