"""Nodes on hosts of their own: network namespaces on one bridge, whose links can be cut."""

import os
import shutil
import subprocess


def missing():
    """Why this machine cannot have such hosts; empty: it can."""
    for program in ("ip", "nft"):
        if not shutil.which(program):
            return f"there is no {program}"
    probe = f"outrider-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "network namespaces are not allowed (root makes them)"
    run("ip", "netns", "del", probe)
    return ""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """A bridge with an address of this machine, which servers listen on. Use as a context manager."""

    def __init__(self):
        number = os.getpid()
        self.name = f"orb{number % 10**9}"
        self.prefix = f"10.213.{number % 256}"
        self.address = f"{self.prefix}.1"
        self.hosts = []
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "address", "add", f"{self.address}/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def host(self, ports):
        """From which nodes join the servers at these ports."""
        self.hosts.append(Host(self, len(self.hosts) + 2, ports))
        return self.hosts[-1]

    def close(self):
        for host in self.hosts:
            run("ip", "netns", "del", host.name)  # its link goes with it
        self.hosts.clear()
        run("ip", "link", "del", self.name)


class Host:
    """A place where a node runs. As Ways: what is cut loses packets instead of delaying them."""

    CHAINS = {"to node": "input", "to server": "output"}

    def __init__(self, network, number, ports):
        self.name = f"{network.name}-{number}"
        self.prefix = ["ip", "netns", "exec", self.name]
        self.join = ",".join(f"{network.address}:{port}" for port in ports)
        link = f"{network.name[:12]}.{number}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", link, "master", network.name, "up")
        run(*self.prefix, "ip", "address", "add", f"{network.prefix}.{number}/24", "dev", "eth0")
        run(*self.prefix, "ip", "link", "set", "eth0", "up")
        run(*self.prefix, "ip", "link", "set", "lo", "up")

    def cut(self, *directions):
        self.heal()
        run(*self.prefix, "nft", "add", "table", "inet", "cut")
        for chain in (self.CHAINS[direction] for direction in directions or self.CHAINS):
            run(*self.prefix, "nft", "add", "chain", "inet", "cut", chain,
                f"{{ type filter hook {chain} priority 0; policy drop; }}")

    def heal(self):
        run(*self.prefix, "nft", "flush", "ruleset")

    def close(self):
        self.heal()
