package storm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/judge"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// judge judges each write of the controllers to ConfigMaps that depends on a state. A create is refused if there is
// any object.
func (s *storm) judge() {
	events, _, err := s.cluster.Audit().Since(0)
	s.must(err)
	dependent, judged := []string{"update", "patch", "delete", "deletecollection"}, 0
	for _, e := range events {
		if e.User.Username != s.installed.User || e.Object.Resource != "configmaps" || !slices.Contains(dependent, e.Verb) ||
			e.Response.Code >= 300 && len(e.Sent) == 0 { // the API server refused it before it had read it
			continue
		}
		judged++
		if err := s.dependsOnACopy(e); err != nil {
			s.Errorf("%s %v: %v", e.Received.Format("15:04:05.000"), e, err)
		}
	}
	if judged == 0 {
		s.Error("The audit log shows no writes to judge")
	}
}

// dependsOnACopy returns nil if a write depends on a state that was a copy of ours.
func (s *storm) dependsOnACopy(e cluster.Event) error {
	version := stateOf(e)
	if version == "" {
		return errors.New("it names no state")
	}
	// A watch of an API server misses some states while that is away. etcd has all.
	content, err := s.cluster.Stored(s.Context(),
		fmt.Sprintf("/registry/configmaps/%s/%s", e.Object.Namespace, e.Object.Name), version)
	if err != nil {
		return err
	}
	cm := &corev1.ConfigMap{}
	if _, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(content, nil, cm); err != nil {
		return err
	}
	o := plan.NewOptions()
	if _, ours := judge.New(&o).CopyOf(cm); !ours {
		return fmt.Errorf("it depends on no copy of ours: labels %v, annotations %v", cm.Labels, cm.Annotations)
	}
	return nil
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
