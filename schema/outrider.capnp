# The Cap'n Proto face of a gateway: the same service as its HTTP port, on the same request type.
#
# A client connects to the RPC port and gets a `Login`. `open` with an API key (or "" where none is
# set) gives an `Outrider`. A generation is one call of `generate`, which returns when the request
# has ended; meanwhile the server calls `push` on the sink that came with it, once per step, in
# order, and `done` once, after the last push and before `generate` returns.
#
#   client                                   server
#     │── open(apiKey) ────────────────────────>│
#     │<──────────────────────────── service ───│
#     │── generate(request, sink) ─────────────>│   validate, tokenize, queue
#     │<──────────────────────── push(chunk) ───│   as often as there are tokens
#     │<──────────────────────── done(result) ──│
#     │<──────────────────────────── result ────│
#
# Flow control: `push` is a streaming call. A client that does not return from it stops its own
# request only; the server parks it and goes on when the client does. Dropping the promise of
# `generate` (or the connection) cancels the request within one step. Errors are exceptions, whose
# text holds the JSON object that HTTP would have sent: {"error":{"message","type","param","code"}}.
#
# Fields of GenerateRequest mirror the JSON fields of POST /v1/chat/completions and
# /v1/completions one to one: snake_case there, camelCase here; a test fails when one side gains a
# field that the other lacks. Defaults mean "not given". Validation is one and the same code.
# Ordinals are only appended; a field that lost its meaning stays in its place.
@0xd1bb01a59c1bd4e7;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("outrider::rpc");

interface Login {
  open @0 (apiKey :Text) -> (service :Outrider);
  # Fails with code 401 where keys are set and this is none of them.
}

interface Outrider {
  generate @0 (request :GenerateRequest, sink :TokenSink) -> (result :GenerateResult);
  models @1 () -> (models :List(ModelInfo));
  health @2 () -> (status :Text, version :Text);
  # status: "loading", "ready" or "draining".
  tokenize @3 (input :TokenizeInput) -> (tokens :List(Int32), maxModelLen :UInt32);
  detokenize @4 (tokens :List(Int32), model :Text) -> (text :Text);
  resetPrefixCache @5 (cold :Bool) -> (blocks :UInt32, blocksInUse :UInt32, coldBlocks :UInt64);
  # POST /reset_prefix_cache: forgets the caller's cached blocks that no request uses (an admin
  # tenant's or, without keys, anybody's call: all tenants'); with `cold` the stored ones, too.
}

interface TokenSink {
  push @0 (chunk :TokenChunk) -> stream;
  done @1 (result :GenerateResult) -> ();
}

struct GenerateRequest {
  model @0 :Text;                     # "": the first one of `models`, here as elsewhere

  # Chat: messages. Completion: prompt. Exactly one of the two.
  messages @1 :List(Message);
  prompt :union {
    none @2 :Void;
    text @3 :Text;
    tokens @4 :List(Int32);
    texts @5 :List(Text);
    tokenLists @6 :List(List(Int32));
  }
  tools @7 :Text;                     # JSON, as on HTTP; "": none
  toolChoice @8 :Text;                # JSON or a bare word; "": not given
  addGenerationPrompt @9 :Bool = true;
  chatTemplateKwargs @10 :Text;       # JSON object; "": none
  addSpecialTokens @11 :Flag;

  maxTokens @12 :Int64 = -1;
  maxCompletionTokens @13 :Int64 = -1;
  minTokens @14 :Int64;
  temperature @15 :Float32 = 1;
  topP @16 :Float32 = 1;
  topK @17 :Int32;
  minP @18 :Float32;
  repetitionPenalty @19 :Float32 = 1;
  presencePenalty @20 :Float32;
  frequencyPenalty @21 :Float32;
  logitBias @22 :List(Bias);
  seed :union {
    none @23 :Void;                   # the server draws one and returns it
    value @24 :UInt64;                # choice i of the result samples with value + i
  }
  n @25 :Int32 = 1;
  bestOf @26 :Int32;
  stop @27 :List(Text);
  stopTokenIds @28 :List(Int32);
  includeStopStrInOutput @29 :Bool;
  ignoreEos @30 :Bool;
  skipSpecialTokens @31 :Bool = true;

  logprobs @32 :Int32 = -1;           # alternatives per token; -1: no logprobs at all
  topLogprobs @33 :Int32 = -1;        # chat's other spelling of the same number
  promptLogprobs @34 :Int32 = -1;
  echo @35 :Bool;
  returnTokenIds @36 :Bool;           # accepted; ids always travel here
  suffix @37 :Text;
  responseFormat @38 :Text;           # JSON; "": text

  user @39 :Text;
  priority @40 :Int32;                # lower is earlier, among those of the key's tenant
  cacheSalt @41 :Text;                # who sends it shares cached prefixes with the same salt only
  deadlineMs @42 :Int64;              # 0: none
  speculation @43 :Text;              # "off", "auto" or JSON; "": not given
  kv @44 :Text;                       # JSON: {"stop_rule", "pin", "ttl_s"}; "": not given
}

enum Flag {
  notGiven @0;
  no @1;
  yes @2;
}

struct Message {
  role @0 :Text;
  content @1 :Text;
  name @2 :Text;
  toolCallId @3 :Text;
  toolCalls @4 :Text;                 # JSON array; "": none
}

struct Bias {
  id @0 :Int32;
  bias @1 :Float32;
}

struct Alternative {
  id @0 :Int32;
  logprob @1 :Float32;                # the bits that the engine computed
  bytes @2 :Data;
}

struct Token {
  id @0 :Int32;
  bytes @1 :Data;                     # may be part of a UTF-8 character
  hasLogprob @2 :Bool;
  logprob @3 :Float32;
  rank @4 :UInt32;                    # 1 is the most probable
  top @5 :List(Alternative);
}

enum FinishReason {
  none @0;                            # the choice goes on
  stop @1;
  length @2;
}

struct TokenChunk {
  choice @0 :UInt32;                  # prompt index times n, plus choice of the prompt
  text @1 :Text;                      # certain text only: never half a character
  tokens @2 :List(Token);
  finishReason @3 :FinishReason;      # set in the choice's last chunk
  stopToken @4 :Int32 = -1;
  stopString @5 :Text;
}

struct Usage {
  promptTokens @0 :UInt64;
  completionTokens @1 :UInt64;
  cachedTokens @2 :UInt64;            # of the prompt tokens
}

struct Timings {
  queueMs @0 :Float64;
  prefillMs @1 :Float64;
  decodeMs @2 :Float64;
  cachedTokensDevice @3 :UInt64;      # of the prompt tokens: found in the pool
  cachedTokensCold @4 :UInt64;        # of the prompt tokens: read from the KV store for this request
  draftN @5 :UInt64;                  # drafted tokens that were verified
  draftNAccepted @6 :UInt64;          # of these: those that were the answer's
  pinsRefusedDevice @7 :UInt64;       # blocks to be pinned for which the pool has no room
  pinsRefusedCold @8 :UInt64;         # the same of the KV store, as far as it had got
  moves @9 :UInt64;                   # times that the request went on at another target
  cachedTokensWarm @10 :UInt64;       # of the prompt tokens: from the host's memory, for this request
  cachedTokensPeer @11 :UInt64;       # of the prompt tokens: from another target, likewise
}

struct PromptTokens {
  tokens @0 :List(Token);             # logprobs with promptLogprobs; the first one never has any
}

struct GenerateResult {
  id @0 :Text;
  model @1 :Text;
  seed @2 :UInt64;                    # given or drawn: repeats the answer
  systemFingerprint @3 :Text;
  usage @4 :Usage;
  timings @5 :Timings;
  prompts @6 :List(PromptTokens);     # one per prompt; in the result of `generate`, not in `done`
}

struct ModelInfo {
  id @0 :Text;
  maxModelLen @1 :UInt32;
  created @2 :Int64;
}

struct TokenizeInput {
  union {
    prompt @0 :Text;
    messages @1 :List(Message);
  }
  addSpecialTokens @2 :Flag;
  addGenerationPrompt @3 :Bool = true;
  model @4 :Text;
}
