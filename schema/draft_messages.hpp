#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/request.hpp"
#include "schema/handles.hpp"
#include "schema/wire_types.hpp"

/// Drafting by a model: what target, router and draft say to each other. Only ids travel, and no
/// message is owed an answer: whatever is lost, late, repeated or reordered costs speed, never a
/// token of an answer.
///
/// Leasing. target -> router: LeaseDraft; router -> target: DraftLease, now, or when a draft of the
/// same tokenizer has room. The router may lease the request to another draft at any time (the
/// first one died, say) by a DraftLease of a higher generation; messages of other generations are
/// dropped. EndLease, once, when the request is over or its draft will have none of it any more.
/// One of them lost: the request is decoded plainly.
/// router -> target: DraftsKnown, whenever it changes; without drafts nobody asks for leases.
///
/// Drafting. target -> draft: DraftOpen for each choice, then DraftCommits: the text, prompt first,
/// by absolute position, in as many messages as it takes, and from then on what each step
/// committed. They are cumulative: a draft skips what it has, and answers a gap with DraftResync.
/// draft -> target: DraftReady, or DraftClose where it cannot, then DraftHints whenever it has
/// some, unasked. DraftClose from either side ends it.
namespace outrider::schema {

/// One choice of one request under one lease. `target` is a worker.
struct DraftKey {
  uint64_t target = 0;
  RequestKey request;
  uint32_t choice = 0;
  uint32_t generation = 0;  ///< Of the lease.

  friend bool operator==(const DraftKey&, const DraftKey&) = default;
  friend auto operator<=>(const DraftKey&, const DraftKey&) = default;
};

// -- target -> router -> target ------------------------------------------------------------------

struct LeaseDraft {
  RequestKey request;
  uint64_t target = 0;
  TargetHandle reply_to;
  std::string tokenizer;    ///< Fingerprint: a draft's must be equal.
  uint32_t runs = 0;        ///< Choices.
  uint32_t generation = 0;  ///< The highest that the request had a lease of.
};

/// Without a draft: the lease that there was has ended.
struct DraftLease {
  RequestKey request;
  uint32_t generation = 0;
  uint64_t worker = 0;
  DraftHandle draft;
};

/// Drafts of the target's tokenizer that live.
struct DraftsKnown {
  uint32_t drafts = 0;
};

struct EndLease {
  RequestKey request;
  uint64_t target = 0;
};

// -- target -> draft -----------------------------------------------------------------------------

struct DraftOpen {
  DraftKey key;
  TargetHandle target;
  std::string tokenizer;
  WireRequest request;         ///< Sampled alike, with the same noise; its stops do not count.
  uint32_t prompt_tokens = 0;  ///< Of the text that follows; the rest is output.
};

/// Tokens that stand behind `base_length` others for good, and what is wanted next.
struct DraftCommit {
  DraftKey key;
  uint32_t base_length = 0;
  std::vector<int32_t> tokens;
  uint32_t depth = 0;    ///< Hints that a step of the target verifies; 0: draft no more for now.
  uint64_t step_ns = 0;  ///< What such a step takes; 0: not known.
};

/// Of all choices that one draft drafts for: limits::draft_entries_max and
/// limits::prompt_part_tokens_max tokens at most.
struct DraftCommits {
  std::vector<DraftCommit> commits;
};

// -- draft -> target -----------------------------------------------------------------------------

/// `base_length` tokens are known, the rest is awaited.
struct DraftReady {
  DraftKey key;
  uint32_t base_length = 0;
};

struct DraftBranch {
  int32_t parent = -1;  ///< Index of the token before it; -1: it follows the base.
  int32_t token = 0;
  uint8_t confidence = 0;  ///< 255 times the probability that it follows its parent.
  /// Where the request verifies by rejection: ids and weights of model::DraftDistribution.
  std::vector<std::pair<int32_t, uint16_t>> drawn_from;
};

/// A tree of tokens that may follow the first `base_length` ones.
struct DraftHint {
  DraftKey key;
  uint32_t base_length = 0;
  uint64_t base_hash = 0;  ///< model::text_hash of these.
  std::vector<DraftBranch> branches;
};

/// limits::draft_entries_max hints of limits::draft_branches_max branches together, where what a
/// branch was drawn from counts as so many more.
struct DraftHints {
  std::vector<DraftHint> hints;
};

/// Tokens from `from_length` on are missing.
struct DraftResync {
  DraftKey key;
  uint32_t from_length = 0;
};

// -- either way ----------------------------------------------------------------------------------

enum class DraftEnd : uint8_t {
  finished = 1,  ///< The request is over.
  tokenizer,     ///< Another one: hints would be noise.
  displaced,     ///< Others needed the room more.
  exhausted,     ///< The draft cannot go on: its context ends, or it failed.
  unknown,       ///< There is no such run.
};

struct DraftClose {
  DraftKey key;
  DraftEnd reason = DraftEnd::finished;
};

}  // namespace outrider::schema
