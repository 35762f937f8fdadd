// Command site renders the documents into pages that a browser reads from the disk: each file of
// Markdown, and the reference of the API from docs/openapi.yaml. It runs no script and asks no
// other host.
//
// A linked file is rendered or copied too, at the same place as in the repository. A link that
// leads nowhere is an error.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the repository")
	out := flag.String("out", "bin/site", "where the pages go; what is there is replaced")
	flag.Parse()
	if err := build(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("open %s/index.html\n", *out)
}
