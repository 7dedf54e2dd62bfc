package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// What the cache takes in: case C42.

// TestC42Relist has the controller read everything anew, several times and in both ways. All is in sync, so
// nothing is written; and what is not in sync afterwards is still found.
func TestC42Relist(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{"watching": nil, "listing": listing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.NewProxied(t, suite.New(t, "a", "b", "c"))
			targets := []string{w.NS("a"), w.NS("b"), w.NS("c")}
			w.StartProxied(env, "--copy-label=team", "--copy-annotation=example.com/*")
			binary := func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": {0, 0xff}, "empty": {}} }
			sources := []*corev1.ConfigMap{
				w.CreateSource(w.Home, "plain"),
				w.CreateSource(w.Home, "empty", suite.WithData(nil)),
				w.CreateSource(w.Home, "binary", binary),
				w.CreateSource(w.Home, "frozen", suite.SetImmutable),
				w.CreateSource(w.Home, "marked", suite.WithLabel("team", "x"), suite.WithAnnotation("example.com/y", "z"), suite.WithAnnotation("other", "z")),
			}
			for _, src := range sources {
				w.WaitInSync(src, targets...)
			}
			// Marks that a copy can carry, put there by a user.
			w.Edit(targets[0], "plain", suite.WithAnnotation("payload", "x"), suite.WithAnnotation("mirror-controller.github.io/payload", "x"))
			w.Settle(targets...)
			mark := w.AuditMark()
			for i, expire := range []func(){
				func() { w.Proxy.ExpireWatches() },
				func() { // and from the beginning: the last resourceVersion is not to be had
					for _, resource := range watched {
						w.Proxy.Inject(faultproxy.Rule{
							Verbs: []string{"watch", "list"}, Resources: []string{resource}, Count: 2, Fault: faultproxy.Fault{Kind: faultproxy.Gone},
						})
					}
					w.Proxy.EndWatches()
				},
			} {
				relists := w.Proxy.Inject(faultproxy.Rule{
					Resources: watched, When: faultproxy.Request.IsRelist, Fault: faultproxy.Fault{Kind: faultproxy.Pass},
				})
				expire()
				w.Await("a relist", func() bool { return relists.Fired() >= 2 && w.Proxy.Watches() == 2 })
				relists.Stop()
				late := w.NS(fmt.Sprintf("late-%d", i))
				w.CreateNamespace(late, nil)
				targets = append(targets, late)
				w.Settle(targets...)
				// Handlers pass over what a relist shows to be as it was. This has every copy compared.
				for n, src := range sources {
					sources[n] = w.Edit(w.Home, src.Name, suite.WithAnnotation("touched", fmt.Sprint(i)))
				}
				w.Settle(targets...)
				w.Settle(targets...)
			}
			for _, e := range w.RequestsSince(mark) {
				if slices.Contains(targets[:3], e.Object.Namespace) && slices.ContainsFunc(sources, named(e.Object.Name)) {
					t.Errorf("a request without need: %v", e)
				}
			}
			for _, src := range sources {
				w.WaitInSync(src, targets...)
			}
			w.Edit(targets[0], "plain", suite.WithData(map[string]string{"key": "wrong"}), suite.WithAnnotation("payload", "y"))
			w.Edit(targets[1], "binary", func(cm *corev1.ConfigMap) { cm.BinaryData["b"] = []byte{1} })
			w.Edit(targets[2], "empty", func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"payload": nil} })
			for _, src := range sources {
				w.WaitInSync(src, targets...)
			}
		})
	}
}

func named(name string) func(*corev1.ConfigMap) bool {
	return func(cm *corev1.ConfigMap) bool { return cm.Name == name }
}

// TestC42ForgedMarks shows that no object from the API can carry what could stand in the controller's cache for
// a payload that was hashed already: a key with nothing before its '/', with two of them, or with none of
// the characters of a key. The API server refuses them from whoever may do everything, in every way to write.
func TestC42ForgedMarks(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	there := w.Create(w.NS("a"), "there")
	marks := map[string][]string{ // by field
		"metadata.annotations": {"/payload", "/", "", "a/b/c", "/a/b", "a//b", "payload/", "pay load", "payload\x00", "./payload"},
		"metadata.labels":      {"/payload", "", "a/b/c"},
		"data":                 {"/payload", "a/b", "a/b/c", "/", "", ".", "..", "..payload", "pay load", "payload\x00"},
		"binaryData":           {"/payload", "a/b", "a/b/c", "/", "", ".", "..", "..payload", "pay load", "payload\x00"},
	}
	for encoding, client := range clients(w) {
		api := client.CoreV1().ConfigMaps(there.Namespace)
		patch := func(name string, kind types.PatchType, body any, options metav1.PatchOptions) error {
			content, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			_, err = api.Patch(t.Context(), name, kind, content, options)
			return err
		}
		yes := true
		for field, keys := range marks {
			for _, key := range keys {
				forged := forgedBy(field, key)
				apply := map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "there"},
				}
				if meta, ok := forged["metadata"].(map[string]any); ok {
					meta["name"] = "there"
				}
				for k, v := range forged {
					apply[k] = v
				}
				for way, write := range map[string]func() error{
					"create": func() error {
						cm := suite.ConfigMap(there.Namespace, "new")
						forge(cm, field, key)
						_, err := api.Create(t.Context(), cm, metav1.CreateOptions{})
						return err
					},
					"update": func() error {
						cm := there.DeepCopy()
						forge(cm, field, key)
						_, err := api.Update(t.Context(), cm, metav1.UpdateOptions{})
						return err
					},
					"merge patch": func() error {
						return patch("there", types.MergePatchType, forged, metav1.PatchOptions{})
					},
					"strategic merge patch": func() error {
						return patch("there", types.StrategicMergePatchType, forged, metav1.PatchOptions{})
					},
					"server-side apply": func() error {
						return patch("there", types.ApplyYAMLPatchType, apply, metav1.PatchOptions{FieldManager: "forger", Force: &yes})
					},
					"server-side apply of a new object": func() error {
						apply["metadata"].(map[string]any)["name"] = "applied"
						defer func() { apply["metadata"].(map[string]any)["name"] = "there" }()
						return patch("applied", types.ApplyYAMLPatchType, apply, metav1.PatchOptions{FieldManager: "forger"})
					},
				} {
					if err := write(); !apierrors.IsInvalid(err) {
						t.Errorf("%s in %s of key %q in %s: %v, want that it is invalid", way, encoding, key, field, err)
					}
				}
			}
		}
	}
	w.Untouched(there)
}

// clients are clients of the admin, by the encoding that they speak.
func clients(w *suite.World) map[string]kubernetes.Interface {
	out := map[string]kubernetes.Interface{}
	for encoding, contentType := range map[string]string{"JSON": kruntime.ContentTypeJSON, "protobuf": kruntime.ContentTypeProtobuf} {
		config := w.Cluster.Admin()
		config.ContentType, config.AcceptContentTypes = contentType, contentType
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			w.Fatal(err)
		}
		out[encoding] = client
	}
	return out
}

// forge puts a key into a field of cm.
func forge(cm *corev1.ConfigMap, field, key string) {
	switch field {
	case "metadata.annotations":
		suite.Put(&cm.Annotations, key, "x")
	case "metadata.labels":
		suite.Put(&cm.Labels, key, "x")
	case "data":
		suite.Put(&cm.Data, key, "x")
	case "binaryData":
		cm.BinaryData = map[string][]byte{key: []byte("x")}
	}
}

// forgedBy is forge as a patch.
func forgedBy(field, key string) map[string]any {
	entry := map[string]any{key: "eA=="} // x, for binaryData
	switch field {
	case "metadata.annotations":
		return map[string]any{"metadata": map[string]any{"annotations": entry}}
	case "metadata.labels":
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: "x"}}}
	}
	return map[string]any{field: entry}
}
