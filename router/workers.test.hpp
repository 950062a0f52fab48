#pragma once

#include <string>

#include "router/worker_table.hpp"

namespace outrider::router {

/// A worker of 8 + 8 slots at 1000 rows/s that holds nothing.
inline schema::Announce announce_of(uint64_t worker, uint64_t incarnation = 1) {
  schema::Announce announce;
  announce.worker = worker;
  announce.incarnation = incarnation;
  announce.name = "worker-" + std::to_string(worker);
  announce.model = "tiny";
  announce.fingerprint = "fp";
  announce.tokenizer = "tokens";
  announce.context_tokens = 4096;
  announce.sequences = 8;
  announce.waiting = 8;
  announce.blocks_total = 1000;
  announce.block_tokens = 16;
  return announce;
}

inline schema::Load load_of(uint64_t worker, uint64_t sequence = 1, uint64_t incarnation = 1) {
  schema::Load load;
  load.worker = worker;
  load.incarnation = incarnation;
  load.sequence = sequence;
  load.blocks_free = 1000;
  load.blocks_total = 1000;
  load.rows_per_s = 1000;
  return load;
}

inline schema::PlaceRequest request_of(uint64_t session, uint32_t prompt_tokens = 100) {
  schema::PlaceRequest request;
  request.key = {session, 1};
  request.model = "tiny";
  request.prompt_tokens = prompt_tokens;
  request.max_tokens = 50;
  request.tenant = "a";
  return request;
}

inline WorkerView view_of(uint64_t worker) {
  WorkerView view;
  view.announce = announce_of(worker);
  view.load = load_of(worker);
  return view;
}

}  // namespace outrider::router
