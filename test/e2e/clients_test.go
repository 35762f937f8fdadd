package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carillon/test/freeport"
)

const (
	typescript = "../../clients/typescript"
	python     = "../../clients/python"

	// clientLimit is far more than a suite takes, because the machine may be busy.
	clientLimit = 3 * time.Minute
)

// TestClientInTypeScript runs the suite of clients/typescript, which starts nodes of its own.
func TestClientInTypeScript(t *testing.T) {
	needTypeScript(t)
	t.Parallel()
	inFolder(t, typescript, []string{"CARILLON_BINARY=" + binary}, "npm", "test", "--silent")
}

// TestClientInPython runs the suite of clients/python, which starts nodes of its own.
func TestClientInPython(t *testing.T) {
	needPython(t)
	t.Parallel()
	env := []string{"CARILLON_BINARY=" + binary, "PYTHONPATH=src:tests", "PYTHONDONTWRITEBYTECODE=1"}
	inFolder(t, python, env, "python3", "-W", "error::ResourceWarning", "-m", "unittest", "discover", "-s", "tests")
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Log("NOT CHECKED: the types of clients/python: mypy is not installed")
		return
	}
	inFolder(t, python, nil, "mypy", "--strict", "--cache-dir", t.TempDir(), "src")
}

// TestClientTypesAreOfTheDocument: the types of the clients are those of docs/openapi.yaml.
func TestClientTypesAreOfTheDocument(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		want := inFolder(t, "../..", nil, "go", "run", "./clients/python/generate")
		same(t, python+"/src/carillon/types.py", want, "go run ./clients/python/generate >clients/python/src/carillon/types.py")
	})
	t.Run("typescript", func(t *testing.T) {
		needTypeScript(t)
		want := inFolder(t, typescript, nil, "npm", "run", "--silent", "types")
		same(t, typescript+"/src/openapi.ts", want, "npm run generate, in clients/typescript")
	})
}

func same(t *testing.T, name, want, mend string) {
	t.Helper()
	if readFile(t, name) != want {
		t.Errorf("%s is not what docs/openapi.yaml says; %s mends it", name, mend)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFirstTimer goes from an empty folder and the packed client to a timer that has fired, as the
// README of each client prints it.
func TestFirstTimer(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	for _, c := range []struct {
		name, readme, language, file string
		need                         func(*testing.T)
		pack                         func(t *testing.T, into string) // is not part of what a user does
		install, run                 string
	}{
		{"typescript", typescript + "/README.md", "js", "first.mjs", needTypeScript, packTypeScript,
			"npm init --yes >/dev/null && npm install --offline --no-audit --no-fund ./carillon-client-*.tgz", "node first.mjs"},
		{"python", python + "/README.md", "python", "first.py", needPython, packPython,
			"$PYTHON -m pip install --quiet --no-index --no-deps --target packages ./carillon_client-*.whl", "PYTHONPATH=packages exec $PYTHON -u first.py"},
		{"go", "../../client/README.md", "go", "first.go", func(*testing.T) {}, packGo,
			"go mod init example.org/shop && go mod edit -require carillon/client@v0.0.0 -replace carillon/client=./client && go build -o first first.go", "exec ./first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.need(t)
			t.Parallel()
			dir := t.TempDir()
			c.pack(t, dir)
			sink := freeport.Address(t)
			began := time.Now()
			node := serve(t, t.TempDir())
			program := strings.NewReplacer("http://127.0.0.1:7700", node.url, "127.0.0.1:7780", sink, "7780", sink[strings.LastIndexByte(sink, ':')+1:]).Replace(firstTimer(t, c.readme, c.language))
			writeFile(t, filepath.Join(dir, c.file), program)
			inFolder(t, dir, []string{"GOFLAGS=-mod=mod", "GOPROXY=off", "PYTHON=" + packingPython()}, "bash", "-c", c.install)
			running := beginIn(t, func(cmd *exec.Cmd) { cmd.Dir = dir }, []string{"bash", "-c", c.run}, "PYTHON="+packingPython())
			for !regexp.MustCompile("order-77 fired:.*\n").MatchString(running.stdout.String()) { // a line may come in two parts
				if !running.alive() || time.Since(began) > limit {
					t.Fatalf("after %v: %s%s", time.Since(began), running.stdout, running.stderr)
				}
				<-time.After(20 * time.Millisecond)
			}
			if !regexp.MustCompile(`order-77 fired: \{ ?['"]?order['"]?: ?77 ?\}`).MatchString(running.stdout.String()) {
				t.Errorf("%s", running.stdout)
			}
			t.Logf("from the empty folder to the fired timer: %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// firstTimer is the program of a README under "The first timer". It has ten lines at most, without
// those that a program of any kind has.
func firstTimer(t *testing.T, readme, language string) string {
	t.Helper()
	_, after, _ := strings.Cut(readFile(t, readme), "## The first timer")
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(after)
	if m == nil {
		t.Fatalf("%s has no first timer", readme)
	}
	lines := 0
	for line := range strings.Lines(m[1]) {
		if line = strings.TrimSpace(line); line != "" {
			lines++
		}
		if line == "func main() {" { // what stands before is Go's
			lines = 0
		}
	}
	if lines > 10 {
		t.Errorf("the first timer of %s takes %d lines", readme, lines)
	}
	return m[1]
}

func packTypeScript(t *testing.T, into string) {
	inFolder(t, typescript, nil, "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", into) // it is built
}

func packPython(t *testing.T, into string) {
	if packingPython() == "" {
		t.Skip("NOT CHECKED: the wheel of clients/python: there is no Python with pip, setuptools and wheel")
	}
	source := filepath.Join(t.TempDir(), "python") // setuptools writes into it
	if err := os.CopyFS(source, os.DirFS(python)); err != nil {
		t.Fatal(err)
	}
	inFolder(t, source, nil, packingPython(), "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", into, ".")
}

func packGo(t *testing.T, into string) {
	if err := os.CopyFS(filepath.Join(into, "client"), os.DirFS("../../client")); err != nil {
		t.Fatal(err)
	}
}

// inFolder runs a command to its end and returns its output.
func inFolder(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out, errOut bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(cleanEnv(), env...), &out, &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, tail(out.String(), 8000), tail(errOut.String(), 4000))
	}
	return out.String()
}

// needTypeScript skips the test where there is no Node.js, or where its packages cannot be fetched.
func needTypeScript(t *testing.T) {
	t.Helper()
	notShort(t)
	why, failed := buildTypeScript()
	if failed != nil {
		t.Fatal(failed)
	}
	if why != "" {
		t.Skip("NOT CHECKED: clients/typescript: " + why)
	}
}

// buildTypeScript fetches the packages that clients/typescript is built with, unless they are
// there, and builds it. why is what it cannot be built without.
var buildTypeScript = sync.OnceValues(func() (why string, failed error) {
	if why := fetchPackages(); why != "" {
		return why, nil
	}
	cmd := exec.Command("npm", "run", "--silent", "build")
	cmd.Dir = typescript
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm run build: %w\n%s", err, out)
	}
	return "", nil
})

func fetchPackages() string {
	if _, err := exec.LookPath("npm"); err != nil {
		return "Node.js is not installed"
	}
	have, err := os.Stat(typescript + "/node_modules/.package-lock.json")
	want, _ := os.Stat(typescript + "/package-lock.json")
	if err == nil && want != nil && !have.ModTime().Before(want.ModTime()) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), clientLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
	cmd.Dir = typescript
	if out, err := cmd.CombinedOutput(); err != nil {
		return "its packages cannot be fetched: " + string(out)
	}
	return ""
}

// needPython skips the test where there is no Python that the client runs with.
func needPython(t *testing.T) {
	t.Helper()
	notShort(t)
	if out, err := exec.Command("python3", "-c", "import sys; assert sys.version_info >= (3, 9)").CombinedOutput(); err != nil {
		t.Skipf("NOT CHECKED: clients/python: %v %s", err, out)
	}
}

// packingPython is a Python that can make wheels and install them without a network; "" if none is
// there.
var packingPython = sync.OnceValue(func() string {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		check := exec.Command(name, "-c", "import setuptools, wheel, pip")
		check.Dir = "/" // where no folder is taken for a module
		if check.Run() == nil {
			return name
		}
	}
	return ""
})

func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("other languages start slowly")
	}
}
