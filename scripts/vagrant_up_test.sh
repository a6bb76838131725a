#!/usr/bin/env bash
# A real `vagrant up` of the Vagrantfile as it stands, with libvirt on software-emulated CPUs and a box made from apt: it is
# set up and tested, set up again without a change, runs the default experiment, gives its results back, takes an edit, and is
# destroyed. As root on Debian 12. About half an hour on two cores. Everything is in a folder of its own, under /var/tmp.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
needed=(vagrant vagrant-libvirt libvirt-daemon-system libvirt-clients dnsmasq-base iptables ebtables polkitd rsync openssh-client
    grub-pc-bin grub-common fdisk qemu-utils qemu-system-x86 mmdebstrap e2fsprogs)
[ "$(id -u)" -eq 0 ] || { echo "vagrant_up_test.sh: needs root: run \`sudo $0\`" >&2; exit 2; }

scratch=$(mktemp -d /var/tmp/vagrant-up.XXXXXX)
export VAGRANT_HOME=$scratch/home VAGRANT_CHECKPOINT_DISABLE=1 VAGRANT_DEFAULT_PROVIDER=libvirt
export LIBVIRT_DEFAULT_URI=qemu:///system VM_CPUS=${VM_CPUS:-2} VM_MEMORY_MIB=${VM_MEMORY_MIB:-2048}
# Of this run alone: one that was killed may have left a machine behind.
prefix=testbed_${scratch##*.}_
daemons=()
project=$scratch/project

say() { echo "== [$SECONDS s] $*"; }

finish() {
    local status=$?
    if [ -d "$project/.vagrant" ]; then (cd "$project" && vagrant destroy -f) >"$scratch/destroy.log" 2>&1 || cat "$scratch/destroy.log"; fi
    virsh -q vol-list default 2>/dev/null | awk '/vagrant_box_image_/ && /debian-VAGRANTSLASH-bookworm64/ { print $1 }' |
        while read -r volume; do virsh -q vol-delete --pool default "$volume" >/dev/null; done
    if virsh -q list --all --name 2>/dev/null | grep "^$prefix"; then say 'the machine is still there'; status=1; fi
    if [ ${#daemons[@]} -gt 0 ]; then
        for network in vagrant-libvirt default; do virsh -q net-destroy "$network" 2>/dev/null || true; done
        kill "${daemons[@]}" || true
    fi
    rm -rf "$scratch"
    [ "$status" -ne 0 ] || say 'passed; the machine is destroyed'
    [ "$status" -eq 0 ] || say "FAILED with status $status"
    exit "$status"
}
trap finish EXIT

# Without systemd nobody has started libvirtd. As packaged, it runs QEMU as a user who may not open /dev/kvm where that is root's
# alone; then it asks QEMU again what it can do at every call, 48 s each. As root both see the same.
start_libvirtd() {
    sed '$a user = "root"\ngroup = "root"' /etc/libvirt/qemu.conf >"$scratch/qemu.conf"
    printf 'unix_sock_group = "root"\nauth_unix_ro = "none"\nauth_unix_rw = "none"\n' >"$scratch/libvirtd.conf"
    mkdir -p /run/libvirt /var/lib/libvirt/images
    virtlogd >"$scratch/virtlogd.log" 2>&1 & daemons+=($!)
    # In mounts of its own: /etc/libvirt stays as it is.
    unshare --mount sh -c "mount --bind $scratch/qemu.conf /etc/libvirt/qemu.conf && exec libvirtd -f $scratch/libvirtd.conf" \
        >"$scratch/libvirtd.log" 2>&1 & daemons+=($!)
    for _ in $(seq 100); do ! virsh -q version >/dev/null 2>&1 || return 0; sleep 0.2; done
    tail -n 5 "$scratch/libvirtd.log" >&2
    return 1
}

# What this machine needs and the Vagrantfile leaves open. Vagrant merges it below the project's.
write_settings() {
    mkdir -p "$VAGRANT_HOME"
    cat >"$VAGRANT_HOME/Vagrantfile" <<V
Vagrant.configure('2') do |config|
  config.vm.boot_timeout = 900
  config.vm.box_check_update = false
  config.vm.provider :libvirt do |libvirt|
    libvirt.driver = 'qemu'
    libvirt.cpu_mode = 'maximum'
    libvirt.graphics_type = 'none'
    libvirt.video_type = 'none'
    libvirt.default_prefix = '$prefix'
  end
end
V
}

add_box() {
    local version
    version=$(sed -n "s/.*box_version = '\(.*\)'.*/\1/p" Vagrantfile)
    scripts/vm.sh box "$scratch/plain.box"
    printf '{"name":"debian/bookworm64","versions":[{"version":"%s","providers":[{"name":"libvirt","url":"file://%s"}]}]}\n' \
        "$version" "$scratch/plain.box" >"$scratch/box.json"
    vagrant box add --no-tty "$scratch/box.json"
}

guest() { vagrant ssh --no-tty -c "$1" 2>/dev/null; }

# What must be the same after the second time: packages, environment, files that a careless script appends to.
state() {
    guest 'dpkg-query -W; stat -c "%n %Y" /vagrant/.venv/setup-stamp; ls /vagrant/.venv/lib/python3*/site-packages;
           cat /etc/profile /etc/hosts ~/.bashrc ~/.ssh/authorized_keys; sudo ls /etc/sudoers.d; pgrep -fc "[m] controller" || true'
}

# A file of the host's reaches the machine, and what the machine made stays.
edit() {
    echo '# edited on the host' >>experiments/default.toml
    vagrant rsync --no-tty
    guest 'tail -n 1 /vagrant/experiments/default.toml && ls /vagrant/results/up/results.csv /vagrant/.venv/setup-stamp' |
        grep -c -e 'edited on the host' -e results.csv -e setup-stamp | grep -qx 3
}

missing=$(for p in "${needed[@]}"; do [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"; done)
if [ -n "$missing" ]; then
    say 'installing' $missing
    apt-get update -q >"$scratch/apt.log" 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >>"$scratch/apt.log" 2>&1
fi
virsh -q version >/dev/null 2>&1 || start_libvirtd
say 'libvirtd answers'
write_settings
add_box
mkdir "$project"
tar --exclude=./.git --exclude=./.vagrant --exclude=./.venv --exclude=./results -cf - . | tar -C "$project" --no-same-owner -xf -
cd "$project"
vagrant validate
say 'vagrant up'
timeout 3600 vagrant up --no-tty
say 'vagrant provision, the second time'
state >"$scratch/before"
timeout 1800 vagrant provision --no-tty | tee "$scratch/provision.log"
state >"$scratch/after"
diff "$scratch/before" "$scratch/after"
if grep -F ' ... ok' "$scratch/provision.log" | grep -F 'setup: '; then say 'the second time did something'; exit 1; fi
say 'the second time has changed nothing; the default experiment'
# Status 1: a row is invalid, because an emulated CPU is too slow for it; it is there all the same.
guest 'cd /vagrant && sudo python3 run_topo.py --out results/up; [ $? -le 1 ]'
vagrant ssh -- -T tar -C /vagrant -cf - results | tar -xf -
grep -H all_reduce results/up/results.csv | cut -c1-200
say 'results are back; an edit'
edit
cmp "$repository/Vagrantfile" Vagrantfile
