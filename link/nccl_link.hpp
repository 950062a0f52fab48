#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "link/nccl_api.hpp"
#include "link/nccl_transfers.hpp"
#include "link/shared_session.hpp"
#include "link/tensor_link.hpp"

namespace outrider::link {

/// What its ends say on the control link: a frame's header, whose payload comes over NCCL;
inline constexpr uint64_t k_nccl_header_tag = 1;
/// and, the leading end: the other's oldest payload that has no turn yet is next.
inline constexpr uint64_t k_nccl_go_tag = 2;
/// Such messages wait to be looked at; what comes beyond waits in the control link.
inline constexpr size_t k_nccl_inbox_messages = 64;

/// A link whose payloads go over NCCL. Another link between the same two ends carries the frames'
/// headers, so all rules and reasons to end are a session's. The order of payloads is that in which
/// the leading end says or hears of them: it answers a header of the other's with a "go", and the
/// other keeps to what comes. It ends when its control link does, when nothing moves, or when NCCL
/// fails; nobody waits for the abort.
class NcclLink final : public TensorLink {
 public:
  /// Of one communicator, which both have joined. The control link is used by nobody else, with
  /// settings under which a header fits a window; its stream 0 is empty.
  struct Parts {
    std::shared_ptr<TensorLink> control;
    std::shared_ptr<Nccl> nccl;
    std::unique_ptr<NcclRank> rank;
    bool leads = false;  ///< One of the two.
  };
  /// Errors: invalid_argument for settings, io: no thread.
  static Result<std::unique_ptr<NcclLink>> open(Parts parts, LinkSetup setup);
  /// Ends it. Nobody may wait in it any more.
  ~NcclLink() override;
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  Result<void> send(uint32_t stream, Message message, TimePoint deadline) override;
  Result<Message> receive(uint32_t stream, TimePoint deadline) override;
  void close() override;
  LinkEnd end() const override { return session_.end(); }

 private:
  NcclLink(Parts parts, LinkSetup setup);

  void listen();
  void run();
  bool hear(TimePoint now);
  bool understand(const Message& message, TimePoint now);
  bool speak(TimePoint now);
  bool say(Message message);
  void leave();
  void rest();
  void wake();
  void stop_listening();
  bool has_left();
  std::optional<Message> next_of_inbox();

  const std::shared_ptr<TensorLink> control_;
  const std::shared_ptr<Nccl> nccl_;
  const bool leads_;
  SharedSession session_;

  std::mutex mutex_;
  std::condition_variable woken_, has_room_;
  bool is_woken_ = false;  ///< Under the mutex, as what follows.
  std::deque<Message> inbox_;
  bool has_left_ = false;  ///< The peer: nothing comes after the inbox.
  bool stops_ = false;     ///< Nobody takes from it any more.

  // The running thread's own.
  NcclTransfers transfers_;
  std::optional<Message> heard_;   ///< It waits for a slot, or for a place for its "go".
  std::optional<Message> unsaid_;  ///< It waits for a place in the control link's queue.
  uint64_t heard_frames_ = 0;

  std::thread listener_, runner_;
};

}  // namespace outrider::link
