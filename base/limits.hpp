#pragma once

#include <cstddef>
#include <cstdint>

/// Every bound of the system, with its unit and its reason. A queue, a retry loop or a parser that
/// has no line here is unbounded, and that is a bug.
namespace outrider::limits {

// -- HTTP and RPC edge ---------------------------------------------------------------------------
/// One request body. A 128k-token prompt as JSON text stays below 1 MiB; 8 MiB leaves room.
inline constexpr size_t http_body_bytes_max = size_t{8} << 20;
/// Sum of header bytes of one request.
inline constexpr size_t http_header_bytes_max = size_t{32} << 10;
/// Open client connections per listener; beyond it a connection is closed at once.
inline constexpr uint32_t connections_max = 4096;
/// Descriptors that are not for client connections: model, store, logs, event loops, libraries.
inline constexpr uint32_t descriptors_reserved = 64;
/// A client must have sent its headers (or logged in, over RPC), and then each further part of its
/// body, within this time.
inline constexpr uint32_t http_header_timeout_ms = 10'000;
inline constexpr uint32_t http_body_timeout_ms = 30'000;
/// And its whole body within this one: 8 MiB at half a megabit a second.
inline constexpr uint32_t http_body_total_timeout_ms = 120'000;
/// Bodies of all HTTP requests together, from their first byte until they are parsed; beyond it:
/// 429. As many of the largest as wait for the text thread.
inline constexpr size_t http_bodies_bytes_max = 32 * http_body_bytes_max;
/// Bytes of a refused upload that are read and dropped, so that the client gets to see the answer
/// instead of a reset connection; then the socket is closed. What a few clients announce at most.
inline constexpr size_t refused_upload_bytes_max = size_t{128} << 20;
/// Pause before a listener tries again that the operating system refused a connection.
inline constexpr uint32_t accept_pause_ms = 100;
/// Idle time between two SSE comments.
inline constexpr uint32_t sse_ping_interval_ms = 1'000;
/// Between two looks whether a client that is waited with is still there: so long computes its
/// request at most for nobody.
inline constexpr uint32_t client_watch_interval_ms = 50;
/// Nesting of a JSON body or a template value.
inline constexpr uint32_t json_depth_max = 64;
/// What finding keys may cost in all JSON of one request (gateway/json_body.cpp has the prices): 50
/// ms at most. An object of 4000 short keys takes it all.
inline constexpr uint64_t json_key_work_max = uint64_t{1} << 24;
/// One write to a client that takes no bytes: then the connection is given up. Longer than any
/// pause of a live reader, short enough that a dead one does not hold its blocks for ever.
inline constexpr uint32_t client_write_timeout_ms = 60'000;
/// Requests in flight in one gateway, HTTP and RPC together; beyond it: 429.
inline constexpr uint32_t open_requests_max = 4096;
/// Bytes that the kernel buffers for one client: small, so that a slow reader is noticed soon.
inline constexpr int32_t client_send_buffer_bytes = 32 << 10;
/// Silence after which a client's machine is asked whether it is still there, and as long again, in
/// so many probes, until its connection counts as gone.
inline constexpr int32_t client_keepalive_s = 60;
inline constexpr int32_t client_keepalive_probes = 6;
/// Time that admitted streams get to finish when the process drains.
inline constexpr uint32_t drain_timeout_ms = 30'000;
/// Time in which clients take their last bytes when the process stops; after it they are cut off.
inline constexpr uint32_t stop_flush_ms = 2'000;
/// What a stop may take beyond drain_timeout_ms until it is given up: to hand over what others are
/// to have, to give up peers that take nothing, to write what is queued for the disk.
inline constexpr uint32_t stop_grace_ms = 30'000;
/// Names of unknown request fields that are remembered, so that each is logged once.
inline constexpr uint32_t unknown_fields_logged_max = 256;
/// Body or message that is parsed, templated and tokenized on the KJ thread: 20 ms at worst (random
/// letters). Beyond it a thread of its own does that, at up to 2.5 s a MiB.
inline constexpr size_t inline_text_bytes_max = size_t{16} << 10;
/// Requests that wait for that thread, each with its body; beyond it: 429, and for a tenant as soon
/// as it has as many waiting as there are places left.
inline constexpr uint32_t text_jobs_max = 32;
/// Text of one prompt in the log, where the operator wants it there.
inline constexpr size_t logged_prompt_bytes_max = size_t{16} << 10;
/// Lines of an API key file.
inline constexpr uint32_t api_keys_max = 65'536;
/// All of it: each line may have a name and as long a key, some of them are comments.
inline constexpr size_t api_key_file_bytes_max = size_t{64} << 20;
/// A YAML file with settings: the longest has a few thousand quotas of tenants.
inline constexpr size_t config_file_bytes_max = size_t{1} << 20;
/// One plan of `--kv-kind auto`: a few KiB; with every pair of kinds that there is, half of that.
inline constexpr size_t kv_plan_bytes_max = size_t{256} << 10;
/// Files among which a start looks for the model's last plan, the newest first: a second at most.
inline constexpr size_t kv_plans_read_max = 64;
/// A shorter key is a slip of the pen, or soon guessed.
inline constexpr size_t api_key_bytes_min = 8;
/// One Cap'n Proto message (words of 8 bytes).
inline constexpr uint64_t rpc_message_words_max = http_body_bytes_max / 8;
/// All that an RPC client may send before it has logged in: a login takes less than 1 KiB.
inline constexpr size_t rpc_login_bytes_max = size_t{64} << 10;
/// Parameters of calls that have not been taken up yet, per connection; then it is not read from.
inline constexpr uint64_t rpc_waiting_words_max = 4 * rpc_message_words_max;
/// One reply that our own client takes: the longest answer with all its logprobs is below. Cap'n
/// Proto's readers take as much by default.
inline constexpr size_t client_reply_bytes_max = size_t{64} << 20;
/// How long it waits for one that is there at once (models, members).
inline constexpr uint32_t client_answer_timeout_ms = 5'000;
/// Logprobs in one answer: each token's own and each alternative's, of the prompt and, where the
/// answer comes at once, of all choices. 12,000 tokens with 20 alternatives, 12 MB; beyond it: 400.
inline constexpr uint64_t answer_logprobs_max = uint64_t{1} << 18;
/// Bytes that one of them takes, as JSON or for Cap'n Proto: under 100 but for very long tokens.
inline constexpr size_t answer_logprob_bytes = 128;

// -- one request ---------------------------------------------------------------------------------
inline constexpr uint32_t choices_max = 16;       ///< `n`: a quarter of the default batch
inline constexpr uint32_t top_logprobs_max = 20;  ///< OpenAI's own bound
// These travel in one control message (a test holds them to it); OpenAI takes 4 stop strings and
// 300 biases.
inline constexpr uint32_t stop_strings_max = 16;
inline constexpr uint32_t stop_string_bytes_max = 256;
inline constexpr uint32_t stop_token_ids_max = 64;
inline constexpr uint32_t logit_bias_entries_max = 1024;
inline constexpr uint32_t messages_max = 4096;         ///< chat messages in one request
inline constexpr uint32_t prompts_max = 128;           ///< prompts in one completions request
inline constexpr uint32_t request_choices_max = 256;   ///< prompts times `n`
inline constexpr uint32_t name_bytes_max = 256;        ///< model, user, tenant, cache_salt, role
inline constexpr uint32_t request_id_bytes_max = 128;  ///< `x-request-id` that we echo

// -- actors --------------------------------------------------------------------------------------
/// One control message: a test of the schema holds the largest of each kind to it. Larger things
/// travel in numbered parts (CAF has no flow control).
inline constexpr size_t control_message_bytes_max = size_t{64} << 10;
/// What one control message is on the wire between processes: its routing comes on top.
inline constexpr size_t cluster_frame_bytes_max = control_message_bytes_max + (size_t{4} << 10);
/// Members connected to a cluster port, and connections that have yet to say who they are; the
/// oldest of those makes room. A member holds two descriptors and 100 KiB.
inline constexpr uint32_t cluster_connections_max = 256;
inline constexpr uint32_t cluster_callers_max = 64;
/// Events that the cluster's port handles in a row before it looks for others: bytes that keep
/// coming on one connection must not hold up the rest.
inline constexpr uint32_t cluster_events_in_a_row = 64;
/// Ends of lines for bulk at one gate, and how long one waits for its other end.
inline constexpr uint32_t cluster_line_ends_max = 64;
inline constexpr uint32_t cluster_line_wait_ms = 2'000;
/// Of all these.
inline constexpr uint32_t cluster_descriptors =
    2 * cluster_connections_max + cluster_callers_max + 2 * cluster_line_ends_max;
/// Of a member, who beats each heartbeat_interval_ms, or of one that takes nothing: it is cut off.
/// Longer than heartbeat_timeout_ms, after which CAF does the same in words.
inline constexpr uint32_t cluster_silence_ms = 5'000;
/// For both sides to say who they are, TLS included.
inline constexpr uint32_t cluster_handshake_ms = 2'000;
/// Prompt tokens in one part: 4 bytes each, well under control_message_bytes_max.
inline constexpr uint32_t prompt_part_tokens_max = 8192;
/// Choices handed to an engine while it runs one step; beyond it `overloaded`. Also the longest
/// queue of an engine, upper bound of the flag.
inline constexpr uint32_t engine_inbox_choices_max = 4096;
/// A stopping engine waits for its tier to take what requests that are over have left, and a target
/// that leaves for others to take its requests and their blocks.
inline constexpr uint32_t hand_over_ms = 10'000;
/// Lines on which a target gives blocks away, and peers that it takes some from; what it waits for
/// one of them at each end.
inline constexpr uint32_t peer_lines_max = 16;
inline constexpr uint32_t peer_wait_ms = 2'000;
/// Bytes that it reads out of its pool between two steps.
inline constexpr uint64_t peer_read_bytes = uint64_t{4} << 20;
/// Requests that a router holds while no worker is known.
inline constexpr uint32_t router_pending_max = 1024;
/// What clients call a model; it travels in control messages.
inline constexpr uint32_t model_name_bytes_max = 256;
/// Events between a session and its client: above it the session's row is parked.
inline constexpr uint32_t client_stream_events_max = 64;
/// Heartbeat of a worker, the silence after which it gets requests only if there is no other, and
/// that after which it counts as lost.
inline constexpr uint32_t heartbeat_interval_ms = 500;
inline constexpr uint32_t heartbeat_late_ms = 1'250;
inline constexpr uint32_t heartbeat_timeout_ms = 2'500;
/// Answer to one control request.
inline constexpr uint32_t control_timeout_ms = 3'000;
/// How many workers in a row may fail a session before its next token, and how many placements in a
/// row may find none. All pauses between take longer than a router may go on listing a worker that
/// cannot be reached.
inline constexpr uint32_t placement_attempts_max = 12;
/// Pause before a session is placed again; doubles with each attempt up to the second value.
inline constexpr uint32_t placement_backoff_ms = 50;
inline constexpr uint32_t placement_backoff_max_ms = 1'000;
/// How long a session that was admitted waits for a place where all queues are full; such answers
/// are no tries.
inline constexpr uint32_t placement_full_ms = 60'000;
/// How often a session asks a silent target, once per control_timeout_ms, before it moves on.
inline constexpr uint32_t session_probes_max = 3;
/// Sessions of one front desk; each holds a prompt and its output's token ids.
inline constexpr uint32_t sessions_open_max = 8192;
/// Pause that a client is told when a queue is full or no worker is there: long enough for some
/// requests to end, short enough for a person to wait.
inline constexpr uint32_t retry_after_ms = 1'000;
/// The longest such pause, however long the queue is: predictions that far ahead are guesses.
inline constexpr uint32_t retry_after_max_ms = 30'000;
/// Workers in one WorkerList, so that it stays one control message.
inline constexpr uint32_t listed_workers_max = 90;
/// Prompts that a target receives in parts at the same time.
inline constexpr uint32_t target_assemblies_max = 1024;
/// Finished requests whose tokens a target keeps for a session that has not acknowledged them.
inline constexpr uint32_t finished_requests_kept = 1024;
/// Tokens with log-probabilities in one message, before its envelope.
inline constexpr size_t tokens_message_bytes_max = control_message_bytes_max / 2;
/// Share of all request slots that one tenant may hold while another tenant holds any.
inline constexpr uint32_t tenant_share_percent = 50;
/// Share of all request slots that is kept for tenants which hold none; of this reserve, one that
/// holds some may take the same share.
inline constexpr uint32_t tenant_reserve_percent = 13;

/// Choices in one message between a target and a draft, and branches of all of its hints.
inline constexpr uint32_t draft_entries_max = 256;
inline constexpr uint32_t draft_branches_max = 4096;
/// Messages that a target sends to a draft that says nothing; then it waits for the heartbeat.
inline constexpr uint32_t draft_unanswered_max = 64;
/// Texts that a draft holds at once, and messages of targets that it has not looked at yet.
inline constexpr uint32_t draft_runs_max = 64;
/// Rows of a draft's step that all of its texts share, upper bound of the flag.
inline constexpr uint32_t draft_rows_max = 512;
inline constexpr uint32_t draft_inbox_max = 4096;
/// Heartbeats (10 s) after which a draft forgets a text that its target says nothing of.
inline constexpr uint32_t draft_run_beats_max = 20;
/// Targets that a draft remembers how to answer: more than have runs (draft_runs_max).
inline constexpr uint32_t draft_targets_max = 256;
/// Tokens hinted at that wait for a target's next step; hints beyond it are dropped.
inline constexpr uint32_t hint_branches_waiting_max = 16'384;
/// Leases of drafts that a router remembers, and asks for one that it could not grant yet.
inline constexpr uint32_t draft_leases_max = 16'384;

// -- engine --------------------------------------------------------------------------------------
inline constexpr uint32_t batch_tokens_max = 4096;  ///< rows of one step, upper bound of the flag
inline constexpr uint32_t sequences_max = 1024;     ///< running sequences, upper bound of the flag
/// Tokens beyond the committed text that a hint may reach.
inline constexpr uint32_t draft_depth_max = 32;
/// Of a prompt, the last tokens that drafts are taken from: 52 to 104 bytes each, and up to a
/// microsecond once.
inline constexpr uint32_t own_text_prompt_tokens_max = 16'384;
/// Tenants of which it is known how their hints fare.
inline constexpr uint32_t draft_tenants_max = 256;
/// Past answers that drafts are taken from: tokens of one tenant's salt, memory of all.
inline constexpr uint32_t past_output_scope_tokens_max = 65'536;
inline constexpr size_t past_output_bytes_max = size_t{48} << 20;
inline constexpr uint32_t block_tokens_unit = 16;  ///< block size is a multiple of this
/// A secret that names of KV blocks are keyed with: no shorter than 128 bits; a file, not a disk.
inline constexpr size_t cluster_secret_bytes_min = 16;
inline constexpr size_t cluster_secret_bytes_max = 4096;
/// A file of certificates, or a key.
inline constexpr size_t certificate_file_bytes_max = size_t{1} << 20;
/// Unfinished requests of a target. Its engine's own bounds on choices speak first.
inline constexpr uint32_t target_requests_max = sequences_max + 2 * engine_inbox_choices_max;
/// Share of a KV pool that pins may spare: what runs beside them keeps most of it.
inline constexpr uint32_t kv_pool_pinned_percent = 25;

// -- GGUF ----------------------------------------------------------------------------------------
inline constexpr uint64_t gguf_tensors_max = 65'536;
inline constexpr uint64_t gguf_metadata_max = 65'536;
inline constexpr uint64_t gguf_string_bytes_max = uint64_t{16} << 20;
inline constexpr uint64_t gguf_array_elements_max = uint64_t{16} << 20;
inline constexpr uint64_t gguf_key_bytes_max = 1024;  ///< 65535 in the format; real ones < 64
inline constexpr uint64_t gguf_tensor_name_bytes_max = 256;  ///< 64 in the format
inline constexpr uint64_t gguf_alignment_bytes_max = uint64_t{1} << 16;
/// Elements of one tensor: keeps every byte count far below 2^64 (4 bytes an element at most).
inline constexpr uint64_t gguf_tensor_elements_max = uint64_t{1} << 44;
inline constexpr uint32_t gguf_dimensions_max = 4;
// Shape of a model: each some times the largest published one, and small enough that products of
// two fit 64 bits and tables by position stay in memory.
inline constexpr uint32_t model_layers_max = 1024;
inline constexpr uint32_t model_width_max = 1u << 18;  ///< hidden and feed-forward width
inline constexpr uint32_t model_heads_max = 1024;
inline constexpr uint32_t model_head_dim_max = 1024;
inline constexpr uint32_t model_context_tokens_max = 1u << 21;
inline constexpr uint32_t vocabulary_max = 1u << 20;
inline constexpr uint32_t token_bytes_max = 4096;

// -- chat templates ------------------------------------------------------------------------------
/// Source of one template; published ones are below 20 KiB.
inline constexpr size_t template_source_bytes_max = size_t{1} << 20;
/// Nested parentheses, operators and blocks in the source.
inline constexpr uint32_t template_syntax_depth_max = 200;
/// Levels of evaluation, macro calls included, and of recursion into values. About 1 KiB of stack
/// each, 4 KiB under ASan.
inline constexpr uint32_t template_nesting_max = 800;
/// Levels of lists and dicts in one value: a JSON body's and what a template wraps around it.
inline constexpr uint32_t template_value_depth_max = json_depth_max + 36;
/// Work of one render (prices in model/jinja/error.hpp). Templates made to burn it end after half a
/// second and 150 MiB at most; 4096 messages in a body of 8 MiB take a twentieth of that.
inline constexpr uint64_t template_work_max = uint64_t{1} << 28;
/// Text of one prompt: every byte of a body escaped as \u00XX, and room for the template's own.
inline constexpr size_t template_output_bytes_max = size_t{64} << 20;
/// Elements of one `range`: the bound of Jinja's own sandbox.
inline constexpr int64_t template_range_max = 100'000;

// -- tokenizer -----------------------------------------------------------------------------------
/// Steps of one match of a splitting rule. A rule steps back over a run of white space once, so no
/// text within template_output_bytes_max reaches it; PCRE2's own 10 million would be too few.
inline constexpr uint32_t split_match_steps_max = 1u << 28;

// -- KV store ------------------------------------------------------------------------------------
/// One stored record: a block of 16 tokens takes 0.2 to 5 MiB in published models.
inline constexpr size_t kv_record_bytes_max = size_t{64} << 20;
inline constexpr uint32_t kv_record_tensors_max = 64;
inline constexpr uint32_t kv_record_tokens_max = 4096;
inline constexpr size_t kv_tensor_name_bytes_max = 24;
/// Rows of the index in memory, about 250 bytes each: 400 GB of the smallest model's blocks.
inline constexpr uint32_t kv_index_rows_max = 1u << 20;
/// Tenants that are accounted by name; all later ones share one account.
inline constexpr uint32_t kv_tenants_max = 65'536;
/// Names of tenants in a store that a server knows; others are told by their number.
inline constexpr size_t kv_tenant_names_max = 4096;
/// Tenants of a store in one `GET /cluster`, 150 bytes each; the others are told of together.
inline constexpr size_t kv_tenants_shown_max = 256;
static_assert(kv_tenants_shown_max <= kv_tenant_names_max && kv_tenant_names_max <= kv_tenants_max);
/// Blocks whose touches are remembered before they are worth storing: a day of 8k prompts at one a
/// minute, 64 bytes each.
inline constexpr uint32_t kv_touched_blocks_max = 1u << 19;
/// Uses of stored blocks that wait for the next commit, 80 bytes each; what is used beyond it may
/// be evicted sooner.
inline constexpr uint32_t kv_uses_waiting_max = 1u << 16;
/// Loads that wait for the read threads; beyond it a load is a miss.
inline constexpr uint32_t kv_loads_max = 1024;
/// Records of one load that are read, but not yet taken by their reader.
inline constexpr uint32_t kv_load_window_records = 32;
/// SST files of the payload family, each an open descriptor and a filter to ask: buffers are sized
/// so that half of them hold the whole cap, the rest is for buffers that were flushed early.
inline constexpr uint32_t kv_payload_files_max = 512;
/// Descriptors that a store holds: each payload file and those of the other families.
inline constexpr uint32_t kv_store_descriptors = kv_payload_files_max + 256;
/// Pause before a store that cannot write (disk full, gone) tries again.
inline constexpr uint32_t kv_write_retry_ms = 5'000;
/// What a request may ask its blocks to be kept for: ten years.
inline constexpr uint32_t kv_ttl_s_max = 315'360'000;
/// Blocks that were read and that their engine has not taken; what comes beyond ends its read.
inline constexpr uint64_t kv_arrivals_bytes_max = uint64_t{512} << 20;
/// Of blocks, copied into or out of a pool between two steps: 1 to 2 ms.
inline constexpr uint64_t kv_step_copy_bytes = uint64_t{8} << 20;
/// Of blocks between a device and memory of the host that are copied beside steps, each way.
inline constexpr uint64_t kv_copies_bytes_max = uint64_t{256} << 20;
/// Into a pool more where steps are long: so much of the last one's time, at 2 GiB/s. What waits
/// for blocks is in no step.
inline constexpr double kv_copy_share = 0.05;
inline constexpr double kv_copy_bytes_per_s = double{uint64_t{2} << 30};
/// Names of blocks that wait to be copied out, 200 bytes each; the newest beyond it is not stored.
inline constexpr uint32_t kv_outgoing_blocks_max = 1u << 14;
/// Between two reads whose only purpose is to know how fast reads are now.
inline constexpr uint32_t kv_probe_interval_ms = 1'000;

// -- links ---------------------------------------------------------------------------------------
/// Bytes of a message in one frame, of which a link keeps one to read into: large enough that its
/// header and a system call cost nothing, small enough that streams take turns each 0.1 ms at 2
/// GB/s.
inline constexpr uint32_t link_frame_bytes_max = 256u << 10;
/// One message: a stored block, the largest of what links carry.
inline constexpr uint64_t link_message_bytes_max = kv_record_bytes_max;
/// What a message takes of a window besides its bytes: places in queues, so that empty ones are
/// bounded, too.
inline constexpr uint64_t link_message_cost_bytes = 256;
/// Of one stream, sent and not yet taken by its reader; each end holds as much, and as much again
/// that waits to be sent.
inline constexpr uint64_t link_window_bytes_max =
    link_message_bytes_max + 16 * link_message_cost_bytes;
/// Streams of one link. There are three uses so far; memory grows with each.
inline constexpr uint32_t link_streams_max = 8;
/// After so long without a frame of its own an end says that it is there.
inline constexpr uint32_t link_ping_ms = 1'000;
/// Without a whole frame from the peer, or while it takes none: then the link is over. As for
/// members of a cluster (cluster_silence_ms).
inline constexpr uint32_t link_silence_ms = 5'000;
/// Between two frames of a message that has begun: all streams take turns, so even a slow peer
/// sends one in time.
inline constexpr uint32_t link_pause_ms = 15'000;
/// How late deadlines are noticed.
inline constexpr uint32_t link_tick_ms = 100;
/// Frames of data that a link over NCCL has under way in each direction, each with its place in
/// pinned memory and in the device's: 2 MiB of either for a link.
inline constexpr uint32_t link_nccl_slots = 4;
/// While some are, it looks at them so often: NCCL wakes nobody.
inline constexpr uint32_t link_nccl_poll_us = 50;
/// For two ends to set up a communicator, which takes NCCL about a second; then they go on without.
inline constexpr uint32_t link_nccl_join_ms = 4'000;
/// Communicators of one device that are being aborted, and do not end: there are no more then.
inline constexpr uint32_t link_nccl_retiring_max = 4;

static_assert(split_match_steps_max >= 4 * template_output_bytes_max);
static_assert(retry_after_ms < retry_after_max_ms);
static_assert(kv_uses_waiting_max <= kv_index_rows_max);
static_assert(past_output_scope_tokens_max * size_t{104} <= past_output_bytes_max / 4,
              "several tenants are remembered, at 104 bytes a token");
static_assert(kv_pool_pinned_percent <= 50, "what runs keeps half of the pool, whoever pins");
static_assert(
    (31 * placement_backoff_ms + (placement_attempts_max - 6) * placement_backoff_max_ms) / 2 >
        heartbeat_timeout_ms + heartbeat_interval_ms,
    "the shortest pauses outlast a worker's silence");
static_assert(placement_backoff_ms << 5 >= placement_backoff_max_ms,
              "pauses are longest from the sixth on");
static_assert(heartbeat_timeout_ms >= 4 * heartbeat_interval_ms,
              "a worker may lose three heartbeats before it counts as lost");
static_assert(heartbeat_late_ms > 2 * heartbeat_interval_ms, "one heartbeat may be lost");
static_assert(prompt_part_tokens_max * sizeof(int32_t) <= control_message_bytes_max / 2,
              "a prompt part and its envelope fit one control message");
static_assert(answer_logprobs_max * answer_logprob_bytes <= client_reply_bytes_max / 2);
static_assert(link_message_bytes_max + link_message_cost_bytes <= link_window_bytes_max,
              "the largest message fits a window");
static_assert(link_streams_max * link_window_bytes_max <= uint64_t{1} << 30,
              "what a peer may have one end hold");
static_assert(link_frame_bytes_max <= link_message_bytes_max);
static_assert(link_silence_ms >= 4 * link_ping_ms, "three pings may be late");
static_assert(link_pause_ms > 2 * link_silence_ms && link_tick_ms * 4 <= link_ping_ms);
static_assert(link_nccl_join_ms < link_silence_ms,
              "an end that waits for the other's communicator has not given it up");
static_assert(2 * link_nccl_join_ms < hand_over_ms, "and blocks have time to move after that");
static_assert(http_header_bytes_max < http_body_bytes_max);
static_assert(http_bodies_bytes_max >= text_jobs_max * http_body_bytes_max);
static_assert(stop_grace_ms >= 2 * hand_over_ms + cluster_silence_ms + stop_flush_ms,
              "a stop that hangs nowhere is not given up");
static_assert(sse_ping_interval_ms < http_body_timeout_ms);
static_assert(http_body_timeout_ms < http_body_total_timeout_ms);

}  // namespace outrider::limits
