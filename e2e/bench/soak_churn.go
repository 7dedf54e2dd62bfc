package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// soakPrefix begins the names of namespaces that come and go.
const soakPrefix = "soak-"

const (
	// changers is how many changes are under way at a time.
	changers = 24
	// pacePeriod is how often the rate is set anew.
	pacePeriod = 3 * time.Second
	// firstRate is how many changes a second there are at first.
	firstRate = 5
)

var ownPid = os.Getpid()

// churn makes random changes. Each takes back what it did before it ends, so that at rest there is as much of everything as before.
type churn struct {
	*bench
	soakSizes
	kindsOf []kind

	made   atomic.Int64
	serial atomic.Int64 // of what is made anew

	mu     sync.Mutex
	random *rand.Rand
	rate   float64 // changes a second
	due    time.Time
	counts map[string]int
}

// kind is a way to change something.
type kind struct {
	name   string
	weight int
	do     func(context.Context) error
}

func newChurn(b *bench, s soakSizes) *churn {
	c := &churn{bench: b, soakSizes: s, rate: firstRate, random: rand.New(rand.NewPCG(s.seed, 0)), counts: map[string]int{}}
	c.kindsOf = []kind{
		{"source edited", 3, c.editSource},
		{"source deleted and created again", 1, c.recreateSource},
		{"source unlabelled and labelled again", 1, c.relabelSource},
		{"copy edited", 8, c.editCopy},
		{"copy deleted", 8, c.deleteCopy},
		{"copy unlabelled", 4, c.unlabelCopy},
		{"copy replaced by a foreign ConfigMap", 3, c.replaceCopy},
		{"namespace opted out and in again", 2, c.optOut},
		{"namespace created and deleted", 2, c.comeAndGo},
		{"unrelated ConfigMap", 4, func(ctx context.Context) error { return c.beside(ctx, nil) }},
		{"forged copy", 4, func(ctx context.Context) error {
			return c.beside(ctx, map[string]string{plan.DefaultLabel: plan.CopyValue})
		}},
	}
	return c
}

// run makes changes until ctx ends, and returns when the last of them is taken back.
func (c *churn) run(ctx context.Context) error {
	slots := make([]int, changers)
	return parallel(changers, slots, func(int) error {
		for c.wait(ctx) == nil {
			k := c.pick()
			one, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			err := k.do(one)
			cancel()
			if err != nil && !expected(err) {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			c.note(k)
		}
		return nil
	})
}

// expected reports whether an error is one that changes cause to each other.
func expected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err)
}

// wait waits for the turn of the next change.
func (c *churn) wait(ctx context.Context) error {
	c.mu.Lock()
	c.due = c.due.Add(time.Duration(float64(time.Second) / c.rate))
	if now := time.Now(); c.due.Before(now) {
		c.due = now // what was missed is not made up for
	}
	due := c.due
	c.mu.Unlock()
	return c.sleep(ctx, time.Until(due))
}

// pace sets the rate by how many cores are to be busy, and how many are.
func (c *churn) pace(want, have float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate = nextRate(c.rate, want, have)
}

// nextRate moves a rate towards one that keeps so many cores busy: slowly, because the effects of a change come later.
func nextRate(rate, want, have float64) float64 {
	return min(1000, max(0.5, rate*min(1.3, max(0.7, want/max(have, 0.01)))))
}

func (c *churn) pick() kind {
	all := 0
	for _, k := range c.kindsOf {
		all += k.weight
	}
	n := c.number(all)
	for _, k := range c.kindsOf {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("the weights are more than their sum")
}

// number returns a random number below n.
func (c *churn) number(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *churn) note(k kind) {
	c.made.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[k.name]++
}

// kinds returns how many changes there were of each kind.
func (c *churn) kinds() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for name, n := range c.counts {
		out[name] = n
	}
	return out
}

// pause leaves things as they are for up to so long. A change is taken back also when the run ends.
func (c *churn) pause(most time.Duration) {
	time.Sleep(time.Duration(c.number(int(most))))
}

func (c *churn) source() string    { return sourceNames(c.sources)[c.number(c.sources)] }
func (c *churn) namespace() string { return c.pool.name(c.number(c.namespaces)) }
func (c *churn) next() string      { return fmt.Sprint(c.serial.Add(1)) }

// putSource makes sure that a source is there, with a version and a label or without.
func (c *churn) putSource(ctx context.Context, name string, labelled bool) error {
	cm := newSource(name, c.next()+" ", c.payload, labelled)
	_, err := c.admin.CoreV1().ConfigMaps(home).Update(ctx, cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.admin.CoreV1().ConfigMaps(home).Create(ctx, cm, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) { // somebody else was faster
		return c.putSource(ctx, name, labelled)
	}
	return err
}

func (c *churn) editSource(ctx context.Context) error { return c.putSource(ctx, c.source(), true) }

// recreateSource is within the second in which copies stay, or later.
func (c *churn) recreateSource(ctx context.Context) error {
	name := c.source()
	err := c.admin.CoreV1().ConfigMaps(home).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !expected(err) {
		return err
	}
	c.pause(3 * time.Second)
	return c.putSource(ctx, name, true)
}

func (c *churn) relabelSource(ctx context.Context) error {
	name := c.source()
	if err := c.putSource(ctx, name, false); err != nil {
		return err
	}
	c.pause(2 * time.Second)
	return c.putSource(ctx, name, true)
}

func (c *churn) editCopy(ctx context.Context) error {
	return c.patchCopy(ctx, `{"data":{"`+dataKey+`":"damaged `+c.next()+`"}}`)
}

func (c *churn) unlabelCopy(ctx context.Context) error {
	return c.patchCopy(ctx, `{"metadata":{"labels":{"`+plan.DefaultLabel+`":null}}}`)
}

func (c *churn) patchCopy(ctx context.Context, patch string) error {
	_, err := c.admin.CoreV1().ConfigMaps(c.namespace()).Patch(ctx, c.source(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (c *churn) deleteCopy(ctx context.Context) error {
	return c.admin.CoreV1().ConfigMaps(c.namespace()).Delete(ctx, c.source(), metav1.DeleteOptions{})
}

// replaceCopy puts a foreign ConfigMap into the place of a copy, for a while: with the label, by which the controller sees it go, or
// without.
func (c *churn) replaceCopy(ctx context.Context) error {
	maps, name := c.admin.CoreV1().ConfigMaps(c.namespace()), c.source()
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: payload("foreign", c.payload)}
	if c.number(3) > 0 {
		foreign.Labels = map[string]string{plan.DefaultLabel: plan.CopyValue}
	}
	if _, err := maps.Update(ctx, foreign, metav1.UpdateOptions{}); err != nil {
		return err
	}
	c.pause(3 * time.Second)
	return maps.Delete(ctx, name, metav1.DeleteOptions{})
}

func (c *churn) optOut(ctx context.Context) error {
	name := c.namespace()
	label := func(value string) error {
		patch := []byte(`{"metadata":{"labels":{"` + plan.DefaultLabel + `":` + value + `}}}`)
		_, err := c.admin.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	if err := label(`"false"`); err != nil {
		return err
	}
	c.pause(3 * time.Second)
	return label("null")
}

// comeAndGo makes a namespace of a name that there never was.
func (c *churn) comeAndGo(ctx context.Context) error {
	name := soakPrefix + c.next()
	if err := c.createNamespace(ctx, name); err != nil {
		return err
	}
	c.pause(5 * time.Second)
	return c.admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
}

// beside makes a ConfigMap of a name that no source has, for a while.
func (c *churn) beside(ctx context.Context, labels map[string]string) error {
	maps := c.admin.CoreV1().ConfigMaps(c.namespace())
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "beside-" + c.next(), Labels: labels}, Data: payload("1", c.payload)}
	if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		return err
	}
	c.pause(3 * time.Second)
	return maps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
}
