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
)

// idToken returns a token of OpenID Connect that ends at a time.
func idToken(end time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{}`)) + "." + encode(fmt.Appendf(nil, `{"exp": %d}`, end.Unix())) + ".signature"
}

// kubeconfig has the address of a server, its certificate, and an expired token.
const kubeconfig = `{"current-context": "any",
"contexts": [{"name": "any", "context": {"cluster": "any", "user": "any"}}],
"clusters": [{"name": "any", "cluster": {"server": %[1]q, "certificate-authority-data": %[2]q}}],
"users": [{"name": "any", "user": {"auth-provider": {"name": "oidc", "config": {"client-id": "any",
"client-secret": "any", "idp-issuer-url": %[1]q, "idp-certificate-authority-data": %[2]q, "refresh-token": "old",
"id-token": %[3]q}}}}]}`

// TestOIDC has a kubeconfig whose token has expired. The command gets another one, and keeps it there, as kubectl does.
func TestOIDC(t *testing.T) {
	fresh := idToken(time.Now().Add(time.Hour))
	var server *httptest.Server // of tokens, and of the API
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch w.Header().Set("Content-Type", "application/json"); {
		case r.URL.Path == "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"token_endpoint": %q}`, server.URL+"/token")
		case r.URL.Path == "/token" && r.FormValue("refresh_token") == "old":
			fmt.Fprintf(w, `{"access_token": "any", "token_type": "Bearer", "refresh_token": "new", "id_token": %q}`, fresh)
		case r.Header.Get("Authorization") == "Bearer "+fresh:
			fmt.Fprint(w, `{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": []}`)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	content := fmt.Appendf(nil, kubeconfig, server.URL, base64.StdEncoding.EncodeToString(authority),
		idToken(time.Now().Add(-time.Hour)))
	path := t.TempDir() + "/config"
	if err := os.WriteFile(path, content, 0o600); err != nil {
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
