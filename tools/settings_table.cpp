#include "tools/settings_table.hpp"

#include "base/limits.hpp"

namespace outrider::tools {
namespace {

using Kind = Setting::Kind;
using limits::batch_tokens_max;
using limits::sequences_max;

std::vector<Setting> model_settings() {
  return {
      {.name = "model", .kind = Kind::path, .help = "GGUF file, or a fetched name"},
      {.name = "model-name",
       .help = "what clients call it (default: the file's stem)",
       .maximum = limits::model_name_bytes_max},
      {.name = "weights-cache",
       .kind = Kind::directory,
       .help = "directory that keeps packed weights for fast starts; empty: none"},
      {.name = "ctx",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "0",
       .help = "longest sequence; 0: the model's own",
       .maximum = 1 << 24},
  };
}

std::vector<Setting> access_settings() {
  return {
      {.name = "http",
       .kind = Kind::address,
       .default_value = "127.0.0.1:8080",
       .help = "OpenAI wire, health, metrics"},
      {.name = "rpc",
       .kind = Kind::address,
       .default_value = "127.0.0.1:8081",
       .help = "Cap'n Proto RPC; off: no port",
       .choices = {"off"}},
      {.name = "api-key-file",
       .kind = Kind::path,
       .help = "one key a line (tenant:key or key); empty: no keys"},
      {.name = "admin-tenant",
       .help =
           "its keys see and reset what is all tenants' (/cluster, /metrics, /reset_prefix_cache); "
           "others their own"},
      {.name = "cors-origins",
       .kind = Kind::origins,
       .default_value = "*",
       .help = "web pages that may ask: *, or origins (https://my.page) by commas; off: none"},
      {.name = "drain-timeout-s",
       .kind = Kind::count,
       .unit = "s",
       .default_value = "30",
       .help =
           "time for admitted streams after SIGTERM, to end or, of a node's, to go on elsewhere",
       .maximum = 86'400},
  };
}

std::vector<Setting> cluster_settings() {
  return {
      {.name = "cluster",
       .kind = Kind::address,
       .default_value = "off",
       .help = "where nodes join; off: nobody",
       .choices = {"off"}},
      {.name = "join",
       .help = "node: HOST:PORT of the server's cluster address; of several servers, by commas"},
      {.name = "node-name",
       .kind = Kind::name,
       .help = "what logs and /cluster call a node (default: ROLE-HOST-PID)",
       .maximum = 64},
      {.name = "cluster-secret-file",
       .kind = Kind::path,
       .help =
           "the same for all processes of a cluster: who has it may join, and names cached blocks "
           "alike; empty: no proof is asked for, names by one in store-dir or at random"},
      {.name = "cluster-tls-cert",
       .kind = Kind::path,
       .help = "this process's certificate, PEM: others of the cluster ask for it; empty: no TLS"},
      {.name = "cluster-tls-key", .kind = Kind::path, .help = "its private key, PEM"},
      {.name = "cluster-tls-ca",
       .kind = Kind::path,
       .help = "who must have signed the others' certificates, PEM"},
      {.name = "cluster-tls-name",
       .help = "node: name in the server's certificate (default: the host of join)"},
      {.name = "cluster-nccl",
       .kind = Kind::choice,
       .default_value = "off",
       .help =
           "how a target on a GPU takes blocks of one that leaves; off: over the cluster's port; "
           "auto: over NCCL, if both have it, which opens connections of its own between their "
           "hosts, without TLS or secret",
       .choices = {"off", "auto"}},
      {.name = "roles",
       .kind = Kind::choice,
       .default_value = "auto",
       .help =
           "what a process is; serve: gateway (targets join it, it has none of its own), or auto: "
           "gateway and target; node: target, which answers as the server's own would, or draft, "
           "also auto: its model drafts for targets",
       .choices = {"auto", "gateway", "target", "draft"}},
  };
}

std::vector<Setting> machine_settings() {
  return {
      {.name = "device",
       .kind = Kind::choice,
       .default_value = "cpu",
       .help = "where the model runs: the CPU, or an NVIDIA GPU by its number",
       .choices = {"cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6",
                   "cuda:7"}},
      {.name = "threads",
       .kind = Kind::count,
       .unit = "threads",
       .default_value = "auto",
       .help = "compute threads; auto or 0: the physical cores of the affinity mask, up to the "
               "cgroup's quota",
       .choices = {"auto"},
       .maximum = 1024},
      {.name = "pin-threads",
       .kind = Kind::choice,
       .default_value = "auto",
       .help = "keep each thread on one CPU; auto: with several caches or memory nodes, if threads "
               "take all cores",
       .choices = {"auto", "on", "off"}},
  };
}

std::vector<Setting> batching_settings() {
  return {
      {.name = "max-batch-tokens",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "512",
       .help = "rows of one step",
       .minimum = 1,
       .maximum = batch_tokens_max},
      {.name = "decode-plan",
       .kind = Kind::choice,
       .default_value = "none",
       .help = "rows of a prefill chunk by the tokens before it; none: as many as a step has; "
               "fixed: decode-chunks; auto: measured at start",
       .choices = {"none", "fixed", "auto"}},
      {.name = "decode-chunks",
       .kind = Kind::counts,
       .unit = "tokens",
       .default_value = "128,256,512",
       .help = "decode-plan fixed: rows behind up to 512 tokens, up to 2048, above",
       .minimum = 1,
       .maximum = batch_tokens_max},
      {.name = "max-seqs",
       .kind = Kind::count,
       .unit = "sequences",
       .default_value = "64",
       .help = "running sequences at once",
       .minimum = 1,
       .maximum = sequences_max},
      {.name = "max-waiting",
       .kind = Kind::count,
       .unit = "choices",
       .default_value = "1024",
       .help = "waiting choices; beyond it clients get 429",
       .minimum = 1,
       .maximum = limits::engine_inbox_choices_max},
  };
}

std::vector<Setting> kv_pool_settings() {
  return {
      {.name = "kv-memory-mb",
       .kind = Kind::count,
       .unit = "MiB",
       .default_value = "1024",
       .help = "size of the KV pool",
       .minimum = 1,
       .maximum = 1 << 24},
      {.name = "block-tokens",
       .kind = Kind::choice,
       .unit = "tokens",
       .default_value = "16",
       .help = "positions in one KV block",
       .choices = {"16", "32", "64"}},
      {.name = "prefix-caching",
       .kind = Kind::choice,
       .default_value = "on",
       .help = "keep full KV blocks for prompts that begin alike",
       .choices = {"on", "off"}},
      {.name = "local-window",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "0",
       .help = "each token attends to so many, itself the last; 0: all. Changes answers",
       .maximum = 1 << 24},
  };
}

std::vector<Setting> kv_kinds_settings() {
  return {
      {.name = "kv-kind",
       .kind = Kind::kv_kinds,
       .default_value = "fp16",
       .help = "cached keys and values: fp32, fp16, bf16, fp8, q8_0, q4_0, nf4, q3, with +hadamard "
               "keys are turned first; auto: measured",
       .choices = {"auto"}},
      {.name = "kv-candidates",
       .kind = Kind::kv_kinds_list,
       .default_value = "q8_0,fp8,k=q8_0,v=q4_0,k=q8_0+hadamard,v=q4_0,k=q8_0,v=nf4,q4_0,"
                        "q4_0+hadamard,nf4,q3",
       .help = "kinds by commas that kv-kind auto measures, as far as the model's heads allow; "
               "fp16 is always one"},
      {.name = "kv-gate-nll",
       .kind = Kind::decimal,
       .unit = "nats",
       .default_value = "0.05",
       .help = "kv-kind auto: what a token's mean NLL may rise by from fp16",
       .maximum = 100},
      {.name = "kv-gate-ppl",
       .kind = Kind::decimal,
       .default_value = "1.05",
       .help = "kv-kind auto: what the perplexity may be multiplied by",
       .minimum = 1,
       .maximum = 100},
      {.name = "kv-gate-needle-kl",
       .kind = Kind::decimal,
       .unit = "nats",
       .default_value = "0.1",
       .help = "kv-kind auto: mean KL where facts have to be found again",
       .maximum = 100},
      {.name = "kv-probe-prompt",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "64",
       .help = "kv-kind auto: tokens of each of the four passages that the probe reads",
       .minimum = 8,
       .maximum = 512},
      {.name = "kv-probe-decode",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "4",
       .help = "kv-kind auto: tokens of each answer to what was hidden between them",
       .minimum = 1,
       .maximum = 64},
      {.name = "plan-dir",
       .kind = Kind::directory,
       .help =
           "directory that keeps what kv-kind auto found; empty: beside the KV store, or without "
           "one each start measures"},
      {.name = "plan-max-age-s",
       .kind = Kind::count,
       .unit = "s",
       .default_value = "604800",
       .help = "a start measures anew when a plan is as old as this; 0: never",
       .maximum = int64_t{1} << 40},
  };
}

std::vector<Setting> drafting_settings() {
  return {
      {.name = "spec",
       .kind = Kind::choice,
       .default_value = "auto",
       .help = "who drafts tokens that a step verifies along with others; ngram: a request's own "
               "text and earlier answers; draft: the draft model (serve and node); auto: whatever "
               "is there. Answers do not depend on it",
       .choices = {"auto", "off", "ngram", "draft"}},
      {.name = "draft",
       .kind = Kind::path,
       .help = "draft model: GGUF file, or a fetched name, of the model's own tokenizer, served by "
               "its own name, too; empty: none"},
      {.name = "draft-device",
       .kind = Kind::choice,
       .default_value = "same",
       .help =
           "where the draft model runs; same: on the model's device, where the model goes first",
       .choices = {"same", "cpu", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5",
                   "cuda:6", "cuda:7"}},
      {.name = "draft-threads",
       .kind = Kind::count,
       .unit = "threads",
       .default_value = "auto",
       .help = "compute threads of the draft model; auto or 0: the cores that threads leaves, one "
               "at least",
       .choices = {"auto"},
       .maximum = 1024},
      {.name = "draft-kv-memory-mb",
       .kind = Kind::count,
       .unit = "MiB",
       .default_value = "256",
       .help = "size of the draft model's KV pool",
       .minimum = 1,
       .maximum = 1 << 24},
      {.name = "draft-rows",
       .kind = Kind::count,
       .unit = "rows",
       .default_value = "1",
       .help = "rows of a step of the draft model that all texts share: of each it follows so many "
               "ways to go on; more pay where the model's steps take long and the draft's rows "
               "cost little, as on a GPU of its own",
       .minimum = 1,
       .maximum = limits::draft_rows_max},
      {.name = "spec-k",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "0",
       .help = "drafted tokens that a step verifies of a sequence, whatever they promise; 0: as "
               "many as pay by the measured costs of a step",
       .maximum = limits::draft_depth_max},
      {.name = "spec-depth-max",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "16",
       .help = "without spec-k: at most so many of them",
       .minimum = 1,
       .maximum = limits::draft_depth_max},
      {.name = "spec-disable-below-accept",
       .kind = Kind::count,
       .unit = "percent",
       .default_value = "0",
       .help = "leaves out drafted tokens, and those behind them, of which less came true of late: "
               "by who drafts and how far beyond the text; 0: only costs decide",
       .maximum = 100},
  };
}

std::vector<Setting> store_settings() {
  return {
      {.name = "kv-host-mb",
       .kind = Kind::count,
       .unit = "MiB",
       .default_value = "auto",
       .help =
           "memory of the host that has the KV pool's blocks and those that it gave up; auto: for "
           "a GPU four times kv-memory-mb, up to a quarter of the host's; for the CPU, whose "
           "pool is the host's own, none",
       .choices = {"auto"},
       .maximum = 1 << 24},
      {.name = "store-dir",
       .kind = Kind::directory,
       .help = "directory that keeps KV blocks across restarts; empty: none"},
      {.name = "store-cap-mb",
       .kind = Kind::count,
       .unit = "MiB",
       .default_value = "4096",
       .help =
           "bytes of that directory, all files together; a write in progress and the log (16 MiB) "
           "come on top",
       .minimum = 64,
       .maximum = 1 << 24},
      {.name = "store-quota-mb",
       .kind = Kind::count,
       .unit = "MiB",
       .default_value = "0",
       .help = "bytes of one tenant's blocks; 0: store-cap-mb",
       .maximum = 1 << 24},
      {.name = "store-tenant-quota-mb",
       .kind = Kind::tenant_quotas,
       .unit = "MiB",
       .help = "the same for some tenants: NAME=MiB by commas"},
      {.name = "store-write-mb-s",
       .kind = Kind::count,
       .unit = "MiB/s",
       .default_value = "128",
       .help = "how fast the store writes at most; 0: no limit",
       .maximum = 1 << 20},
  };
}

std::vector<Setting> logging_settings() {
  return {
      {.name = "log-level",
       .kind = Kind::choice,
       .default_value = "info",
       .help = "what is logged",
       .choices = {"trace", "debug", "info", "warn", "error", "off"}},
      {.name = "log-json",
       .kind = Kind::flag,
       .default_value = "false",
       .help = "JSON lines instead of text"},
      {.name = "log-prompts",
       .kind = Kind::flag,
       .default_value = "false",
       .help = "log prompt text"},
  };
}

}  // namespace

std::vector<SettingTopic> setting_topics() {
  return {
      {"The model", model_settings()},
      {"Ports and who may ask", access_settings()},
      {"The cluster", cluster_settings()},
      {"The machine", machine_settings()},
      {"What a step computes", batching_settings()},
      {"The KV pool", kv_pool_settings()},
      {"Kinds of KV", kv_kinds_settings()},
      {"Drafts", drafting_settings()},
      {"The KV store", store_settings()},
      {"The log", logging_settings()},
  };
}

}  // namespace outrider::tools
