package main

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// idToken returns a token of OpenID Connect that ends at a time.
func idToken(end time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{}`)) + "." + encode(fmt.Appendf(nil, `{"exp": %d}`, end.Unix())) + ".signature"
}

// TestOIDC has a kubeconfig whose token has expired. The command gets another one, and keeps it there, as kubectl does.
func TestOIDC(t *testing.T) {
	expired, fresh := idToken(time.Now().Add(-time.Hour)), idToken(time.Now().Add(time.Hour))
	var issuer *httptest.Server
	issuer = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch w.Header().Set("Content-Type", "application/json"); {
		case r.URL.Path == "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"token_endpoint": %q}`, issuer.URL+"/token")
		case r.FormValue("refresh_token") == "old":
			fmt.Fprintf(w, `{"access_token": "any", "token_type": "Bearer", "refresh_token": "new", "id_token": %q}`, fresh)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer issuer.Close()
	apiServer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+fresh {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": []}`)
	}))
	defer apiServer.Close()

	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw})
	config, path := api.NewConfig(), t.TempDir()+"/config"
	config.Clusters["any"] = &api.Cluster{Server: apiServer.URL, CertificateAuthorityData: authority}
	config.AuthInfos["any"] = &api.AuthInfo{AuthProvider: &api.AuthProviderConfig{Name: "oidc", Config: map[string]string{
		"client-id": "any", "client-secret": "any", "idp-issuer-url": issuer.URL,
		"idp-certificate-authority-data": base64.StdEncoding.EncodeToString(authority),
		"id-token":                       expired, "refresh-token": "old"}}}
	config.Contexts["any"] = &api.Context{Cluster: "any", AuthInfo: "any"}
	config.CurrentContext = "any"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	run(t.Context(), []string{"status", "--kubeconfig=" + path}, nil, &bytes.Buffer{}, &problems)
	if !strings.Contains(problems.String(), "no Deployment has the label") {
		t.Errorf("got %q, want the answer of the API server", problems.String())
	}
	if kept, err := os.ReadFile(path); err != nil || !strings.Contains(string(kept), fresh) {
		t.Errorf("got the kubeconfig\n%s\n%v, want the new token in it", kept, err)
	}
}
