package faultproxy

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// TestFaultsOfRequests has a create meet each fault once. The other faults need no test: without them those of package
// faults wait in vain.
func TestFaultsOfRequests(t *testing.T) {
	t.Parallel()
	creates := 0 // that the server has seen
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		creates++
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, cluster.WriteKubeconfig(file, "user",
		&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}))
	p, err := Start(file, t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	must(t, err)
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("a")
	create := func() error {
		cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}}
		_, err := client.Create(t.Context(), cm, metav1.CreateOptions{})
		return err
	}
	gotNoAnswer := func(err error) bool {
		return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
	}
	for kind, want := range map[Kind]struct {
		is      func(error) bool
		reached int // requests that the server has seen
	}{
		TooManyRequests: {apierrors.IsTooManyRequests, 0},
		InternalError:   {apierrors.IsInternalError, 0},
		Unavailable:     {apierrors.IsServiceUnavailable, 0},
		Conflict:        {apierrors.IsConflict, 0},
		Gone:            {apierrors.IsResourceExpired, 0},
		ResetBefore:     {gotNoAnswer, 0},
		ResetAfter:      {gotNoAnswer, 1},
	} {
		t.Run(string(kind), func(t *testing.T) {
			creates = 0
			injected := p.Inject(Rule{Count: 1, Kind: kind})
			if err := create(); !want.is(err) {
				t.Error(err)
			}
			if creates != want.reached || injected.Fired() != 1 {
				t.Errorf("%d requests reached the server, want %d; fired %d", creates, want.reached, injected.Fired())
			}
			if err := create(); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
