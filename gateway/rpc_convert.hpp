#pragma once

#include <optional>

#include "base/result.hpp"
#include "gateway/generation.hpp"
#include "gateway/json_body.hpp"
#include "gateway/parsed_request.hpp"
#include "schema/outrider.capnp.h"

/// Between the RPC's structs and the gateway's own words. Pure.
namespace outrider::gateway {

/// The JSON body that HTTP would have carried: fields at their defaults are left out. So both ways
/// in share one validation. JSON in text fields is parsed out of `budget`.
Result<Json> request_json(rpc::GenerateRequest::Reader request, JsonBudget& budget);
/// Chat if it has messages.
RequestKind request_kind(rpc::GenerateRequest::Reader request);
Result<Json> messages_json(capnp::List<rpc::Message>::Reader messages, JsonBudget& budget);
std::optional<bool> flag_of(rpc::Flag flag);
/// The whole text, NUL bytes too.
capnp::Text::Reader as_capnp(const std::string& text);

void write_chunk(const ChoiceDelta& delta, const Generation& generation,
                 rpc::TokenChunk::Builder out);
void write_result(const Generation& generation, const std::string& id,
                  rpc::GenerateResult::Builder out);
/// The prompts' tokens, which may be most of a result: written once.
void write_prompts(const Generation& generation, rpc::GenerateResult::Builder out);

}  // namespace outrider::gateway
