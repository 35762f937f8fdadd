package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTenantOfATopic: the token that adds to it and says most about its name, or the first of
// those.
func TestTenantOfATopic(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	var text strings.Builder
	for i, line := range []string{
		`name: ops, scopes: [admin, add], topics: ["*"]`,
		`name: watch, scopes: [read], topics: ["shop.orders"]`,
		`name: shop, scopes: [add], topics: ["shop.*", "shop"]`,
		`name: shop-2, scopes: [add, cancel], topics: ["shop.*"]`,
		`name: orders, scopes: [add], topics: ["shop.orders.*", "*.bills"]`,
	} {
		text.WriteString("- {" + line + ", sha256: \"" + strings.Repeat(string(rune('a'+i)), 64) + "\"}\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := LoadAuth(file)
	if err != nil {
		t.Fatal(err)
	}
	tenants := auth.Tenants()
	for topic, want := range map[string]string{
		"mail": "ops", "shop": "shop", "shop.orders": "shop", "shop.orders.eu": "orders", "x.bills": "orders", "shop.bills": "orders", "shopping": "ops",
	} {
		if got := tenants.Of(topic); got != want {
			t.Errorf("%s is %q's, want %q", topic, got, want)
		}
	}
	if err := auth.Reload(); err != nil || auth.Tenants() == tenants {
		t.Errorf("a second reading cannot be told from the first: %v", err)
	}
	if got := (*Auth)(nil).Tenants().Of("shop"); got != "" {
		t.Errorf("without tokens: %q", got)
	}
}
