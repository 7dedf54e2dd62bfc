package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestDocsReadme creates the source that the README shows, and compares the copy with the one that it shows.
func TestDocsReadme(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	w.Start()
	var src corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(manual.Find(t, "README.md", `mirror: "true"`+"\ndata:").Text), &src); err != nil {
		t.Fatal(err)
	}
	w.WaitInSync(w.CreateSource(w.Home, src.Name, suite.WithData(src.Data)), w.NS("a"))
	made := w.Live(w.NS("a"), src.Name)
	shown, err := yaml.Marshal(corev1.ConfigMap{
		TypeMeta: src.TypeMeta, Data: made.Data, BinaryData: made.BinaryData, Immutable: made.Immutable,
		ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: made.Name, Labels: made.Labels, Annotations: made.Annotations},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.NewReplacer(": "+w.Instance+"\n", ": default\n", w.Home, "platform", w.Prefix, "team-", w.Label, "mirror").Replace(string(shown))
	want := manual.Find(t, "README.md", "mirror: copy\n").Text
	if got != want {
		t.Errorf("got the copy\n%swant that of the README\n%s", got, want)
	}
}
