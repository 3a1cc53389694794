#!/usr/bin/env bash
# info.bliki.wiki:bliki-core 3.1.0 (WikiModel.render with PlainTextConverter), Java 17.
#
# Guess: it gives an article's text as a reader has it: footnotes stand at the end or nowhere, "&amp;" is "&", and lines
#   that a page breaks are apart.
# Seen: the text of each <ref> stands where its number would, glued to the sentence: "the capital.Smith 1999, p. 3 It".
#   "&amp;", "&lt;" and "&gt;" become "&#38;", "&#60;" and "&#62;" in the plain text, and "&eacute;" is "é". <br>
#   joins words ("LondonParis"), and "a < b and c > d" loses what is between. Links, tables and formulas are right.
# What follows: sentences of a corpus have bibliographies in them, and entries such as "38". Take <ref> out of the
#   wikitext before, and decode the result.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
cat > pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>info.bliki.wiki</groupId><artifactId>bliki-core</artifactId><version>3.1.0</version>
      <exclusions><exclusion><groupId>ch.qos.logback</groupId><artifactId>logback-classic</artifactId></exclusion>
      </exclusions></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.18</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B -Dmaven.repo.local="$place/m2" dependency:copy-dependencies -DoutputDirectory=lib \
    > log 2>&1 || { cat log; exit 1; }
cat > Try.java <<'JAVA'
import info.bliki.wiki.filter.PlainTextConverter;
import info.bliki.wiki.model.WikiModel;
import java.util.LinkedHashMap;
import java.util.Map;

public class Try {
    public static void main(String[] given) throws Exception {
        Map<String, String> seen = new LinkedHashMap<>();
        seen.put("'''Paris''' is [[France|the French]] capital.", "Paris is the French capital.");
        seen.put("let <math>x^2</math> be, said R. D&eacute;.", "let x^2 be, said R. Dé.");
        seen.put("It is the capital.<ref>Smith 1999, p. 3</ref> It has", "It is the capital.Smith 1999, p. 3 It has");
        seen.put("A<ref name=\"a\">Book</ref> b.<ref name=\"a\" /> C\n\n<references />", "ABook b. C");
        seen.put("Research & Development, AT&amp;T, &lt;b&gt;", "Research & Development, AT&#38;T, &#60;b&#62;");
        seen.put("London<br>Paris<br />Rome", "LondonParisRome");
        seen.put("If a < b and c > d then stop.", "If a  d then stop.");
        boolean asSeen = true;
        for (var each : seen.entrySet()) {
            var model = new WikiModel("${image}", "${title}");
            String found = model.render(new PlainTextConverter(), each.getKey()).strip();
            System.out.println(each.getKey().replace("\n", "\\n") + " gives " + found.replace("\n", "\\n"));
            asSeen &= found.equals(each.getValue());
        }
        System.exit(asSeen ? 0 : 1);
    }
}
JAVA
java -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8 -cp "lib/*" Try.java
