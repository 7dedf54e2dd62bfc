package storm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// key is the namespace and the name of a ConfigMap.
type key = types.NamespacedName

// findings judges what the controllers have written to ConfigMaps since the mark.
func (s *storm) findings(mark cluster.Mark) (problems []error) {
	events, _, err := s.cluster.Audit().Since(mark)
	s.must(err)
	for _, e := range events {
		if e.User.Username != s.installed.User || e.Object.Resource != "configmaps" || !slices.Contains(dependent, e.Verb) ||
			e.Response.Code >= 300 && len(e.Sent) == 0 { // the API server refused it before it had read it
			continue
		}
		if err := s.judge(e); err != nil {
			problems = append(problems, fmt.Errorf("%s %v: %w", e.Received.Format("15:04:05.000"), e, err))
		}
	}
	return problems
}

// dependent are the verbs of writes that depend on a state. A create is refused if there is any object.
var dependent = []string{"update", "patch", "delete", "deletecollection"}

// judge finds a write that depends on no state of a copy of ours.
func (s *storm) judge(e cluster.Event) error {
	version := stateOf(e)
	if version == "" {
		return errors.New("it names no state")
	}
	cm, err := s.stored(key{Namespace: e.Object.Namespace, Name: e.Object.Name}, version)
	if err == nil && !isOurs(cm) {
		err = fmt.Errorf("it depends on no copy of ours: labels %v, annotations %v", cm.Labels, cm.Annotations)
	}
	return err
}

// stateOf returns the resourceVersion that an update, a JSON patch or a deletion depends on; empty if there is none.
func stateOf(e cluster.Event) string {
	var operations []struct {
		Op, Path string
		Value    any
	}
	_ = json.Unmarshal(e.Sent, &operations) // of a patch
	for _, o := range operations {
		if o.Op == "replace" && o.Path == "/metadata/resourceVersion" { // a conflict where it is another one
			return fmt.Sprint(o.Value)
		}
	}
	var sent struct {
		Metadata      struct{ ResourceVersion string } // of an update
		Preconditions struct{ UID, ResourceVersion string }
	}
	_ = json.Unmarshal(e.Sent, &sent) // of a request without a body nothing is read
	if e.Verb == "delete" && sent.Preconditions.UID != "" {
		return sent.Preconditions.ResourceVersion
	}
	return sent.Metadata.ResourceVersion
}

// isOurs reads the contract on its own: a mistake in package plan is none here.
func isOurs(cm *corev1.ConfigMap) bool {
	const domain = "mirror-controller.github.io/"
	namespace, name, _ := strings.Cut(cm.Annotations[domain+"source"], "/")
	return cm.Annotations[domain+"copy"] == cm.Namespace+"/"+cm.Name && cm.Annotations[domain+"instance"] == "default" &&
		name == cm.Name && namespace != "" && namespace != cm.Namespace
}

// stored asks etcd for a state: a watch of an API server misses some while that is away.
func (s *storm) stored(at key, version string) (*corev1.ConfigMap, error) {
	content, err := s.cluster.Stored(s.Context(), "/registry/configmaps/"+at.String(), version)
	if err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{}
	_, _, err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(content, nil, cm)
	return cm, err
}
