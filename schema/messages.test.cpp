#include "schema/messages.hpp"

#include <gtest/gtest.h>
#include <caf/actor_system.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/is_typed_actor.hpp>
#include <caf/message.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <array>
#include <type_traits>

#include "base/limits.hpp"

namespace outrider::schema {
namespace {

struct Config : caf::actor_system_config {
  Config() { add_messages(*this); }
};

/// Fills every field with a different value, so that a field left out of inspect() shows.
class Filler {
 public:
  using result_type = bool;

  template <class... Fields>
  bool operator()(Fields&&... fields) {
    (fill(fields), ...);
    return true;
  }

 private:
  template <class T>
  void fill(T& x) {
    using Type = std::remove_const_t<T>;
    static_assert(!std::is_floating_point_v<Type>, "a float does not survive CAF");
    if constexpr (caf::meta::is_annotation<Type>::value) {
    } else if constexpr (std::is_same_v<Type, bool>) {
      x = true;
    } else if constexpr (std::is_same_v<Type, Role>) {
      x = Role::draft;
    } else if constexpr (std::is_same_v<Type, DraftEnd>) {
      x = DraftEnd::displaced;
    } else if constexpr (std::is_integral_v<Type>) {
      x = static_cast<Type>(++counter_);
    } else if constexpr (std::is_same_v<Type, std::string>) {
      x = "text " + std::to_string(++counter_);
    } else if constexpr (caf::is_typed_actor<Type>::value) {
      // A live handle needs an actor behind it; TravelsWithALiveHandle covers that.
    } else {
      fill_compound(x);
    }
  }
  template <class T>
  void fill_compound(std::vector<T>& x) {
    x.resize(3);
    for (T& item : x) fill(item);
  }
  template <class T>
  void fill_compound(caf::optional<T>& x) {
    x = T{};
    fill(*x);
  }
  template <class T, size_t n>
  void fill_compound(std::array<T, n>& x) {
    for (T& item : x) fill(item);
  }
  template <class A, class B>
  void fill_compound(std::pair<A, B>& x) {
    fill(x.first);
    fill(x.second);
  }
  template <class T>
  void fill_compound(T& x) {
    inspect(*this, x);
  }

  uint32_t counter_ = 0;
};

/// What reading a message back gives: the bytes of the copy, or an error.
template <class T>
caf::expected<std::vector<char>> through_the_wire(caf::actor_system& system,
                                                  const std::vector<char>& bytes, size_t length) {
  T copy;
  caf::binary_deserializer source(system, bytes.data(), length);
  if (auto error = source(copy)) return error;
  std::vector<char> again;
  caf::binary_serializer sink(system, again);
  if (auto error = sink(copy)) return error;
  return again;
}

template <class T>
class EveryMessage : public ::testing::Test {
 protected:
  std::vector<char> filled() {
    T value;
    inspect(filler_, value);
    std::vector<char> bytes;
    caf::binary_serializer sink(system_, bytes);
    EXPECT_FALSE(sink(value));
    return bytes;
  }

  Config config_;
  caf::actor_system system_{config_};
  Filler filler_;
};

using AllTypes =
    ::testing::Types<CancelSession, ResumeSession, CountSessions, SessionCount, PlaceRequest,
                     PlaceReply, SubmitBegin, PromptPart, SubmitEnd, CancelRequest, SetParked,
                     Resend, DoneAck, Accepted, Rejected, Tokens, Done, Announce, Load,
                     AnnounceAgain, ListWorkers, WorkerInfo, WorkerList, WorkerRefused, LeaseDraft,
                     DraftLease, EndLease, DraftOpen, DraftCommit, DraftCommits, DraftReady,
                     DraftBranch, DraftHint, DraftHints, DraftResync, DraftClose, DraftsKnown,
                     ServesModel, Leaving, LineWanted>;
TYPED_TEST_SUITE(EveryMessage, AllTypes);

constexpr size_t k_registered = caf::id_block::outrider::end - caf::id_block::outrider::begin;
template <class... Types>
constexpr size_t count(::testing::internal::ProxyTypeList<Types...>) {
  return sizeof...(Types);
}
static_assert(count(AllTypes{}) == k_registered, "a registered type is missing from this test");

TYPED_TEST(EveryMessage, ReadsBackWithEachFieldAsItWas) {
  const auto bytes = this->filled();
  const auto again = through_the_wire<TypeParam>(this->system_, bytes, bytes.size());
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, bytes);
}

TYPED_TEST(EveryMessage, FailsCleanlyWhenTruncatedAnywhere) {
  const auto bytes = this->filled();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(through_the_wire<TypeParam>(this->system_, bytes, length)) << length;
  }
}

TYPED_TEST(EveryMessage, IsRegisteredSoThatARemoteMailboxGetsIt) {
  TypeParam value;
  inspect(this->filler_, value);
  auto message = caf::make_message(value);
  std::vector<char> bytes;
  caf::binary_serializer sink(this->system_, bytes);
  ASSERT_FALSE(sink(message));
  caf::message copy;
  caf::binary_deserializer source(this->system_, bytes);
  ASSERT_FALSE(source(copy));
  EXPECT_TRUE(copy.match_elements<TypeParam>());
}

TEST(Messages, TravelWithALiveHandle) {
  Config config;
  caf::actor_system system{config};
  auto router = system.spawn([]() -> RouterHandle::behavior_type {
    return {[](const PlaceRequest&) {},
            [](const Announce&) {},
            [](const Load&) {},
            [](const LeaseDraft&) {},
            [](const EndLease&) {},
            [](const ServesModel&) {},
            [](ListWorkers) { return WorkerList{}; }};
  });
  std::vector<char> bytes;
  caf::binary_serializer sink(system, bytes);
  ASSERT_FALSE(sink(router));
  RouterHandle copy;
  caf::binary_deserializer source(system, bytes);
  ASSERT_FALSE(source(copy));
  EXPECT_EQ(copy, router);
  // Its entry in the registry would keep it, and with it the system, alive.
  caf::anon_send_exit(router, caf::exit_reason::user_shutdown);
}

template <class T>
size_t bytes_of(const T& message) {
  Config config;
  caf::actor_system system{config};
  std::vector<char> bytes;
  caf::binary_serializer sink(system, bytes);
  EXPECT_FALSE(sink(message));
  return bytes.size();
}

TEST(Messages, EachCounterOfHintsTravels) {
  EXPECT_EQ(bytes_of(HintCounters{}), sizeof(HintCounters));
}

TEST(Messages, TheLargestOfEachKindFitsOneControlMessage) {
  constexpr size_t k_handle_bytes = 64;  // Of a live actor; the ones here are null.
  const std::string name(limits::name_bytes_max, 'n');
  PromptPart part{{~0ull, ~0u}, 7, std::vector<int32_t>(limits::prompt_part_tokens_max, 123)};
  EXPECT_LE(bytes_of(part), limits::control_message_bytes_max);

  SubmitBegin begin;
  begin.request.id = begin.request.tenant = begin.request.cache_salt = name;
  begin.request.logit_bias_bits.resize(limits::logit_bias_entries_max);
  begin.request.stop_token_ids.resize(limits::stop_token_ids_max);
  begin.request.stop_strings.assign(limits::stop_strings_max,
                                    std::string(limits::stop_string_bytes_max, 's'));
  EXPECT_LE(bytes_of(begin) + k_handle_bytes, limits::control_message_bytes_max);

  DraftOpen open;
  open.tokenizer = std::string(64, 'f');
  open.request = begin.request;
  EXPECT_LE(bytes_of(open) + k_handle_bytes, limits::control_message_bytes_max);

  // Both bounds hold for all entries together.
  DraftCommits commits{std::vector<DraftCommit>(limits::draft_entries_max)};
  commits.commits.back().tokens.assign(limits::prompt_part_tokens_max, 123);
  EXPECT_LE(bytes_of(commits), limits::control_message_bytes_max);
  DraftHints hints{std::vector<DraftHint>(limits::draft_entries_max)};
  hints.hints.back().branches.resize(limits::draft_branches_max);
  EXPECT_LE(bytes_of(hints), limits::control_message_bytes_max);
  hints.hints.back().branches.assign(1, {});
  hints.hints.back().branches.back().drawn_from.resize(limits::draft_branches_max - 1);
  EXPECT_LE(bytes_of(hints), limits::control_message_bytes_max);

  WorkerInfo worker;
  worker.announce.name = std::string(64, 'n');
  worker.announce.model = name;
  worker.announce.fingerprint = std::string(64, 'f');
  worker.announce.tokenizer = std::string(64, 't');
  const WorkerList list{std::vector<WorkerInfo>(limits::listed_workers_max, worker)};
  EXPECT_LE(bytes_of(list) + limits::listed_workers_max * k_handle_bytes,
            limits::control_message_bytes_max);
}

}  // namespace
}  // namespace outrider::schema
