package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

const (
	// restPatience is how long it may take until everything is in sync. A place that a foreign ConfigMap had is tried again within
	// a minute.
	restPatience = 3 * time.Minute
	// restPoll is how often it is compared. Each time is a list of all ConfigMaps.
	restPoll = 2 * time.Second
)

// settled waits until the cluster is what the model of the storm says, and returns what is not so in the end.
func (b *bench) settled(ctx context.Context, prefixes []string) (wrong []error, err error) {
	flags := model.Flags{Prefixes: prefixes, Excluded: []string{"kube-*"}, Instance: "default", PruneLimit: 50}
	for began := time.Now(); ; {
		now, err := b.state(ctx)
		if err != nil {
			return nil, err
		}
		wrong = compare(flags, now)
		if len(wrong) == 0 || time.Since(began) > restPatience {
			return wrong, nil
		}
		if err := b.sleep(ctx, restPoll); err != nil {
			return nil, err
		}
	}
}

// state is what there is in the cluster now.
func (b *bench) state(ctx context.Context) (model.State, error) {
	s := model.State{}
	namespaces, err := b.admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	configMaps, err := b.admin.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	s.Namespaces = byKey(namespaces.Items, func(o *corev1.Namespace) string { return o.Name })
	s.ConfigMaps = byKey(configMaps.Items, func(o *corev1.ConfigMap) model.Key { return model.KeyOf(o) })
	return s, nil
}

// byKey returns pointers to the items by their keys.
func byKey[K comparable, T any](items []T, key func(*T) K) map[K]*T {
	out := make(map[K]*T, len(items))
	for i := range items {
		out[key(&items[i])] = &items[i]
	}
	return out
}

// compare returns what is not as the model says. No process has been started in between, and no object had metadata of others: that
// is all that the model has to know of the past. A namespace that is still to go is not settled either.
func compare(flags model.Flags, now model.State) []error {
	past := model.Past{
		Pristine: func(types.UID) bool { return true },
		Judged:   func(model.Key, model.Key) bool { return false },
		Later:    func(*corev1.ConfigMap) bool { return false },
	}
	var wrong []error
	for name := range now.Namespaces {
		if strings.HasPrefix(name, soakPrefix) {
			wrong = append(wrong, fmt.Errorf("namespace %s is still there", name))
		}
	}
	for _, v := range flags.Verdicts(now, past) {
		if err := flags.Unmet(v, past, now.ConfigMaps[v.Key]); err != nil {
			wrong = append(wrong, err)
		} else if v.Obstructed() {
			wrong = append(wrong, fmt.Errorf("%s: a foreign ConfigMap is still in the way", v.Key))
		}
	}
	return wrong
}
