#include "tools/inspect_cluster.hpp"

#include <cmath>
#include <iostream>
#include <sstream>

#include "tools/http_client.hpp"
#include "tools/server_json.hpp"
#include "tools/shown.hpp"

namespace outrider::tools {
namespace {

constexpr size_t k_shown_bytes_max = 200;
constexpr double k_mb = 1 << 20;  ///< as in the settings

/// On one line that is not too long.
std::string line_of(std::string text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  if (text.size() > k_shown_bytes_max) {
    size_t end = k_shown_bytes_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "…";
  }
  return shown(std::move(text));
}

std::string word(const nlohmann::json& object, const char* key) {
  return line_of(text_of(object, key, "?"));
}

/// A count of any size, from a number of any kind.
std::string whole(const nlohmann::json& object, const char* key, double unit = 1) {
  std::ostringstream out;
  out.precision(15);
  out << std::round(number_of(object, key) / unit);
  return out.str();
}

/// "1 block", also of what another server says.
std::string counted_of(const nlohmann::json& object, const char* key, const std::string& noun) {
  return whole(object, key) + " " + noun + (number_of(object, key) == 1 ? "" : "s");
}

/// Of a draft whom it drafts for, of a target who is drafted for.
std::string runs_text(const nlohmann::json& load) {
  const bool is_wanted = member_of(load, "drafting") == true;
  if (number_of(load, "draft_runs") == 0 && !is_wanted) return "";
  return "  draft models: for " + counted_of(load, "draft_runs", "choice") +
         (is_wanted ? "; wanted now\n" : "\n");
}

std::string member_text(const nlohmann::json& member) {
  const nlohmann::json& load = member_of(member, "load");
  const bool leaves = member_of(load, "leaving") == true;
  const bool hangs = member_of(load, "hangs") == true;
  return word(member, "name") + "  " + word(member, "role") + " of " + word(member, "model") +
         ", context " + whole(member, "context_tokens") + " tokens, heard " +
         whole(member, "silent_ms") + " ms ago" + (leaves ? ", leaving" : "") +
         (hangs ? ", hangs" : "") + "\n" + "  choices: " + whole(load, "running") + " running, " +
         whole(load, "waiting") + " waiting, " + whole(load, "parked") + " parked\n" +
         "  KV blocks: " + whole(load, "blocks_free") + " of " + whole(load, "blocks_total") +
         " free; " + whole(load, "queued_rows") + " rows queued, " + whole(load, "rows_per_s") +
         " rows/s\n" + runs_text(load);
}

/// "absent 2, gated 1", of counts by reason; "" if there are none.
std::string reasons_text(const nlohmann::json& counts) {
  std::string out;
  if (!counts.is_object()) return out;
  for (const auto& [reason, count] : counts.items()) {
    out += (out.empty() ? "" : ", ") + line_of(reason) + " " + whole(counts, reason.c_str());
  }
  return out;
}

std::string use_text(const nlohmann::json& tenant) {
  return counted_of(tenant, "blocks", "block") + ", " + whole(tenant, "bytes", k_mb) + " MiB, " +
         whole(tenant, "pinned_bytes", k_mb) + " MiB of them pinned";
}

std::string tenants_text(const nlohmann::json& store) {
  std::string out;
  if (const auto& tenants = member_of(store, "tenants"); tenants.is_object()) {
    for (const auto& [name, tenant] : tenants.items()) {
      const bool has_quota = number_of(tenant, "quota_bytes") > 0;
      out += "  tenant " + (name.empty() ? "(public)" : line_of(name)) + ": " + use_text(tenant) +
             (has_quota
                  ? "; quota " + whole(tenant, "quota_bytes", k_mb) + " MiB, " +
                        counted_of(tenant, "over_quota_blocks", "block") + " over it not stored\n"
                  : "; no quota\n");
    }
  }
  const auto& others = member_of(store, "other_tenants");
  if (number_of(others, "tenants") > 0) {
    out += "  " + counted_of(others, "tenants", out.empty() ? "tenant" : "other tenant") + ": " +
           use_text(others) + "\n";
  }
  return out;
}

/// "5, 3, 1"
std::string counts_text(const nlohmann::json& counts) {
  std::string out;
  if (!counts.is_array()) return out;
  for (const auto& count : counts) {
    const bool is_count = count.is_number_unsigned();
    out += (out.empty() ? "" : ", ") + (is_count ? std::to_string(count.get<uint64_t>()) : "?");
  }
  return out;
}

std::string drafts_text(const nlohmann::json& drafts) {
  if (!drafts.is_object()) return "";
  const bool texts = member_of(drafts, "ngram") == true;
  const std::string model = line_of(text_of(drafts, "model"));
  std::string by = texts ? "texts" : "";
  if (!model.empty()) by += (by.empty() ? "" : " and ") + model;
  const char* nobody = !drafts.contains("ngram")               ? "what targets have"
                       : number_of(drafts, "draft_tokens") > 0 ? "nobody any more"
                                                               : "nobody yet";
  std::string out = "drafts by " + (by.empty() ? nobody : by) + ": " +
                    whole(drafts, "accepted_tokens") + " of " + whole(drafts, "draft_tokens") +
                    " tokens came true";
  const std::string places = counts_text(member_of(drafts, "accepted_tokens_per_pos"));
  if (!places.empty()) out += ", by place " + places;
  if (const auto& sources = member_of(drafts, "sources"); sources.is_object()) {
    for (const auto& [name, source] : sources.items()) {
      out += "; " + line_of(name) + " " + whole(source, "accepted_tokens") + " of " +
             whole(source, "draft_tokens");
    }
  }
  const std::string hints = reasons_text(member_of(drafts, "hints"));
  return out + (hints.empty() ? "\n" : "; hints: " + hints + "\n");
}

/// A list has room for so many.
std::string unlisted_text(const nlohmann::json& by_role, size_t listed) {
  const double all = number_of(by_role, "target") + number_of(by_role, "draft");
  if (all <= static_cast<double>(listed)) return "";
  return "not listed: some of " + counted_of(by_role, "target", "target") + " and " +
         counted_of(by_role, "draft", "draft") + "\n";
}

std::string gate_text(const nlohmann::json& gate) {
  if (!gate.is_object()) return "";
  const std::string refused = reasons_text(member_of(gate, "refused"));
  return "cluster port: " + whole(gate, "connected") + " connected" +
         (refused.empty() ? "\n" : "; refused: " + refused + "\n");
}

std::string store_text(const nlohmann::json& store) {
  const std::string outage = word(store, "outage");
  const std::string why = line_of(text_of(store, "outage_text"));
  std::string out = "KV store: " + (outage == "none" ? "open" : "out of order, " + outage) + "; " +
                    counted_of(store, "blocks", "block") + ", " + whole(store, "bytes", k_mb) +
                    " MiB; files " + whole(store, "file_bytes", k_mb) + " MiB, " +
                    whole(store, "queued_bytes", k_mb) + " MiB to be written\n";
  if (!why.empty()) {
    out += (outage == "none" ? "  an earlier database was given up: " : "  ") + why + "\n";
  }
  out += "  since the start: " + counted_of(store, "loaded_blocks", "block") + " loaded, " +
         whole(store, "stored_blocks") + " stored\n";
  for (const auto& [key, words] :
       {std::pair{"loads", "loads by end"}, std::pair{"skipped", "blocks not stored"},
        std::pair{"removed", "blocks removed"}}) {
    const std::string reasons = reasons_text(member_of(store, key));
    if (!reasons.empty()) out += std::string("  ") + words + ": " + reasons + "\n";
  }
  return out + tenants_text(store);
}

int inspect_cluster(const std::string& url, const std::string& api_key, bool json) {
  const auto cluster = fetch_cluster(url, api_key);
  if (!cluster) return report(cluster.error());
  if (json) {
    std::cout << cluster->dump(2) << '\n';
  } else {
    std::cout << cluster_text(*cluster);
  }
  return k_exit_done;
}

}  // namespace

Result<nlohmann::ordered_json> fetch_cluster(const std::string& url, const std::string& api_key) {
  auto client = HttpClient::connect(url, api_key);
  if (!client) return client.error();
  const auto reply = (*client)->get("/cluster");
  if (!reply) return reply.error();
  auto json = nlohmann::ordered_json::parse(reply->body, nullptr, false);
  if (reply->status == 200 && json.is_object()) return json;
  const std::string words = error_of(json).value_or(
      reply->status == 200 ? "no JSON object: " + reply->body : reply->body);
  return fail(ErrorCode::unavailable,
              line_of(url + "/cluster: HTTP " + std::to_string(reply->status) + " " + words));
}

std::string cluster_text(const nlohmann::json& cluster) {
  std::string out = "sessions open: " + whole(cluster, "sessions_open") + "\n";
  if (cluster.contains("kv_kind")) out += "KV kind: " + word(cluster, "kv_kind") + "\n";
  const nlohmann::json& members = member_of(cluster, "members");
  if (!members.is_array() || members.empty()) out += "no members\n";
  for (const auto& member : members) out += member_text(member);
  out += unlisted_text(member_of(cluster, "members_by_role"), members.size());
  out += gate_text(member_of(cluster, "gate"));
  out += drafts_text(member_of(cluster, "drafts"));
  if (const auto& store = member_of(cluster, "kv_store"); store.is_object()) {
    out += store_text(store);
  }
  return out;
}

void add_inspect_cluster(CLI::App& inspect, Action& action) {
  auto* cluster = inspect.add_subcommand("cluster", "Members, roles and load of a running server");
  auto url = std::make_shared<std::string>("http://127.0.0.1:8080");
  auto key = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  cluster->add_option("--url", *url, "HTTP address of a gateway [" + *url + "]")->type_name("URL");
  cluster->add_option("--api-key", *key, "API key, when the server wants one")
      ->type_name("KEY")
      ->envname("OUTRIDER_API_KEY");
  cluster->add_flag("--json", *json, "all that the server says, as JSON");
  cluster->footer(
      "What runs and waits is as of the last heartbeat.\n"
      "Example: outrider inspect cluster --url http://127.0.0.1:8080 --json");
  cluster->callback([url, key, json, &action] {
    action = [url, key, json] { return inspect_cluster(*url, *key, *json); };
  });
}

}  // namespace outrider::tools
