package main

import (
	"bytes"
	"fmt"
	"regexp"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Benchmarks that begin with copies in sync.

// syncedScene has small sources: what is measured is what goes with each copy.
func syncedScene() scene { return scene{sources: *synced, targets: 200, payload: 100} }

// inSync is a controller with nothing to do: the share of a core that it uses. Then it is one that starts with all
// copies in sync, until it mirrors. The limit is the time in which a bare informer in a plain program has the same
// ConfigMaps, without the start of its process: the ratio leaves out 0.3 s of ours.
func inSync(b *bench) {
	all := syncedScene()
	b.fill(all, func(c *controller) {
		c.quiet()
		b.print(fmt.Sprintf("idle/n=%d/bar=0.3%%", all.copies()), metric{100 * c.shareOfCore(*idleFor), "%-of-a-core"})
	})
	for round := range *rounds {
		ours, limit := b.starts(round, []string{all.prefix()})
		const start = 300 * time.Millisecond
		b.print(fmt.Sprintf("restart/n=%d/bar=1.30", all.copies()), seconds(ours, "sec/op"), seconds(limit, "limit-sec/op"),
			metric{(ours - start).Seconds() / limit.Seconds(), "x-limit"})
	}
}

// starts returns how long a controller takes until it mirrors, and a bare informer for the same ConfigMaps.
func (b *bench) starts(round int, prefixes []string) (ours, limit time.Duration) {
	alternately(round, func() {
		b.sleep(pause)
		c := b.launch(prefixes, shipped.RunOptions{})
		c.during(func() { ours = c.waitMirrors() })
	}, func() { limit = b.informerSync() })
	return ours, limit
}

// memory is what the controller has in memory for a copy: in a process that has made all copies, and in one that
// has started with all in sync, both left alone for a while. A copy costs the difference between few copies and many;
// that scene has the same targets and fewer sources.
func memory(b *bench) {
	many := syncedScene()
	fewer := many
	fewer.sources = max(1, many.sources/4)
	more := float64(many.copies() - fewer.copies())
	for range *few {
		before, after := b.footprint(fewer), b.footprint(many)
		for i, what := range []string{"made/bar=2.0KiB", "restarted/bar=2.0KiB", "live/bar=0.8KiB"} {
			n := fmt.Sprintf("n=%d-%d/", fewer.copies(), many.copies())
			b.print(n+what, metric{(after[i] - before[i]) / more, "B/copy"})
		}
	}
}

// footprint has a process make all copies of a scene, and another start with them. It returns what both have in
// memory, and the live heap of the second, in bytes.
func (b *bench) footprint(s scene) (bytes [3]float64) {
	b.fill(s, func(c *controller) { bytes[0] = b.settled(c) })
	b.with([]string{s.prefix()}, func(c *controller) { bytes[1], bytes[2] = b.settled(c), c.liveHeap() })
	return bytes
}

// settled leaves a process alone for a while and returns what it has in memory then.
func (b *bench) settled(c *controller) float64 {
	c.quiet()
	b.sleep(*settleFor)
	return residentOf(c.Pid())
}

var goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// changes asks whether anything grows: sources, copies and namespaces come, change and go, and what there is in memory
// at rest in the last third of the time is compared with what there was in the middle third. Caches and pools fill up
// in the first third.
func changes(b *bench) {
	all := scene{10, smallTargets, payload}
	b.fill(all, nil)
	w := b.watch(mirrorSelector)
	defer w.stop()
	const fresh = "churn-"
	b.with([]string{all.prefix(), fresh}, func(c *controller) {
		for _, third := range []string{"first", "middle", "last"} {
			for rest := range 3 {
				for i := range *few {
					b.change(w, all, i, fmt.Sprintf("%s%s-%d-%d", fresh, third, rest, i))
				}
				c.quiet()
				b.print("third="+third, metric{c.liveHeap(), "live-B"}, metric{c.ask("/metrics", goroutinesLine), "goroutines"})
			}
		}
	})
}

// change edits a source, deletes it and makes it anew; damages two copies; and has a namespace come and go.
func (b *bench) change(w *watcher, s scene, i int, namespace string) {
	names, namespaces := sourceNames(s.sources), s.names()
	name, target := names[i%len(names)], namespaces[i%len(namespaces)]
	w.timed(s.targets, in(s.prefix(), holds(name, "2")), func() { b.updateSource(name, "2", s.payload) })
	w.timed(s.targets, in(s.prefix(), gone(name)),
		func() { check(b.maps(home).Delete(b.ctx, name, metav1.DeleteOptions{})) })
	w.timed(s.targets, in(s.prefix(), holds(name, "1")), func() { b.createSource(name, "1", s.payload) })
	b.repair(w, opUpdate, target, name)
	b.repair(w, opDelete, target, names[(i+1)%len(names)])
	w.timed(s.sources, in(namespace, holds("", "1")), func() { b.createNamespace(namespace) })
	w.timed(s.sources, in(namespace, gone("")), func() {
		check(b.admin.CoreV1().Namespaces().Delete(b.ctx, namespace, metav1.DeleteOptions{}))
	})
}

// plugin is what `kubectl mirror status` and `plan` take in a large cluster that is in sync. A person waits for it, on
// a laptop.
func plugin(b *bench) {
	all := scene{10, *pluginAt, payload}
	b.fill(all, nil)
	for range *few {
		b.runPlugin(all, "status", "-A")
		b.runPlugin(all, "plan")
	}
}

// runPlugin runs a command once. Exit code 1 would mean that the cluster is not in sync.
func (b *bench) runPlugin(s scene, args ...string) {
	name := args[0]
	args = append(args, "--namespace-prefix="+s.prefix(), "--kubeconfig="+b.cluster.AdminKubeconfig())
	cmd := b.cluster.Command(b.ctx, *kubectlMirror, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	check(cmd.Start())
	// The kernel's own account, ru_maxrss, begins with the memory of the parent.
	process, peak := get(procfs.NewProc(cmd.Process.Pid)), 0.0
	for {
		now, err := process.NewStatus()
		if err != nil || now.VmHWM == 0 { // a process that has ended has no memory
			break
		}
		peak = float64(now.VmHWM)
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	if err := cmd.Wait(); err != nil {
		check(fmt.Errorf("kubectl mirror %s: %w: %s", name, err, stderr.Bytes()))
	}
	b.print(fmt.Sprintf("%s/n=%d/bar=10s,300MiB", name, s.copies()), seconds(took, "sec/op"), metric{peak, "peak-B"})
}
