#include "data/index/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/index/split.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Labels : public testing::Test {
 protected:
  Labels() {
    for (const char* name : {"a/1.jpg", "a/2.jpg", "b, c/3.jpg", "b, c/4 x.jpg"}) write(name, "x");
  }

  void write(const std::string& name, const std::string& text) { write_file(root() / name, text); }
  LabelList read(const std::string& text, const std::string& column = "", const std::string& data_dir = "/nowhere") {
    write("list.txt", text);
    return read_labels(root() / "list.txt", data_dir, column, 2);
  }
  std::string error(const std::string& text, ExitCode code = ExitCode::data, const std::string& column = "") {
    return error_of(code, [&] { read(text, column); });
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(Labels, TablesAndLinesAreRead) {
  const std::vector<ListedFile> files = {{"a/1.jpg", 1}, {"b, c/3.jpg", 0}, {"a/2.jpg", 1}};
  for (const std::string text : {
           "path,label\na/1.jpg,dog\n\"b, c/3.jpg\",cat\na/2.jpg,dog\n",
           "\xEF\xBB\xBFLabel,Filename\r\ndog,a/1.jpg\r\n\r\ncat,\"b, c/3.jpg\"\r\n dog , a/2.jpg \r\n",
           "image\tclass\na/1.jpg\tdog\nb, c/3.jpg\tcat\na/2.jpg\tdog",
           "a/1.jpg\tdog\nb, c/3.jpg\tcat\na/2.jpg\tdog\n",
       }) {
    SCOPED_TRACE(text);
    const LabelList list = read(text);
    EXPECT_EQ(list.listing.train.files, files);
    EXPECT_THAT(list.listing.classes, ElementsAre("cat", "dog"));
    EXPECT_EQ(list.listing.train.folder, root());
    EXPECT_THAT(list.parts, IsEmpty());
    EXPECT_THAT(list.groups, IsEmpty());
  }
  // Caffe's: paths may have blanks, labels are numbers.
  const LabelList caffe = read("a/1.jpg 10\na/2.jpg 9\nb, c/4 x.jpg 10\n");
  EXPECT_THAT(caffe.listing.classes, ElementsAre("9", "10"));
  EXPECT_EQ(caffe.listing.train.files[2], (ListedFile{"b, c/4 x.jpg", 1}));
}

TEST_F(Labels, PathsBeginAtTheDataFolderOrTheList) {
  write("elsewhere/a/1.jpg", "x");
  write("elsewhere/a/2.jpg", "x");
  const std::string text = "path,label\na/1.jpg,x\na/2.jpg,y\n" + (root() / "b, c" / "3.jpg").string() + ",z\n";
  const std::string quoted = "path,label\na/1.jpg,x\na/2.jpg,y\n\"" + (root() / "b, c" / "3.jpg").string() + "\",z\n";
  EXPECT_THAT(error(text), HasSubstr("line 4: has 3 cells, but line 1 has 2"));
  EXPECT_EQ(read(quoted).listing.train.folder, root());
  EXPECT_EQ(read(quoted, "", (root() / "elsewhere").string()).listing.train.folder, root() / "elsewhere");
  EXPECT_EQ(read(quoted).listing.train.folder / read(quoted).listing.train.files[2].name, root() / "b, c" / "3.jpg");
}

TEST_F(Labels, ClassesHaveTheOrderOfTheirFile) {
  write("classes.txt", "dog\ncat\n");
  const std::string text = "path,label\na/1.jpg,cat\na/2.jpg,dog\n";
  EXPECT_THAT(read(text).listing.classes, ElementsAre("dog", "cat"));
  EXPECT_THAT(error(text + "\"b, c/3.jpg\",cow\n"), HasSubstr("line 4: the class 'cow' is not in classes.txt"));
  write("classes.txt", "dog\ncat\ncow\n");
  EXPECT_THAT(error(text), HasSubstr("the class 'cow' of classes.txt has no image"));
  write("classes.txt", "dog\ncat\ndog\n");
  EXPECT_THAT(error(text), HasSubstr("line 3: the class 'dog' is there twice"));
}

TEST_F(Labels, AColumnDivides) {
  const std::string head = "path,label,split\n";
  const LabelList list = read(head + "a/1.jpg,x,train\na/2.jpg,x,Validation\n\"b, c/3.jpg\",y,test\n");
  EXPECT_EQ(list.parts, std::string({kTrains, kEvaluates, kTests}));
  EXPECT_THAT(list.listing.unused, ElementsAre("test"));
  EXPECT_EQ(read(head + "a/1.jpg,x,train\na/2.jpg,x,test\n").parts, std::string({kTrains, kEvaluates}));
  EXPECT_THAT(error(head + "a/1.jpg,x,train\na/2.jpg,x,\n"),
              HasSubstr("line 3: the split '' is none of train, val and test"));
}

TEST_F(Labels, GroupsAreThoseOfTheColumn) {
  const std::string text = "path,label,patient,group\na/1.jpg,x,7,A\na/2.jpg,x,8,B\n";
  EXPECT_THAT(read(text, "patient").groups, ElementsAre("7", "8"));
  EXPECT_THAT(read("path,label,group\na/1.jpg,x,A\n").groups, ElementsAre("A"));
  EXPECT_THAT(error(text), HasSubstr("line 1 has the unknown column 'patient'"));
  EXPECT_THAT(error(text, ExitCode::usage, "camera"), HasSubstr("--split-group camera"));
  EXPECT_THAT(error("a/1.jpg 0\n", ExitCode::usage, "camera"), HasSubstr("has no columns"));
}

TEST_F(Labels, TheFirstWrongLineIsNamedAndAllAreCounted) {
  const std::string head = "path,label\n";
  EXPECT_THAT(error(head + "a/1.jpg,x\na/7.jpg,x\nb/8.jpg,x\n"),
              AllOf(HasSubstr("line 3: "), HasSubstr("a/7.jpg does not exist"), HasSubstr("(2 such lines in all)")));
  EXPECT_THAT(error(head + "a/1.jpg,x\na,x\n"), HasSubstr("line 3: " + (root() / "a").string() + " is a folder"));
  EXPECT_THAT(error(head + "a/1.jpg,\n"), HasSubstr("line 2: has no label"));
  EXPECT_THAT(error(head + ",x\n"), HasSubstr("line 2: has no path"));
  EXPECT_THAT(error(head + "a/1.jpg,x\na/1.jpg,y\n"),
              HasSubstr("line 3: a/1.jpg is in line 2 already, with another label"));
  EXPECT_THAT(error(head + "a/1.jpg,cat;outdoor\n"), HasSubstr("line 2: 'cat;outdoor' are several labels"));
  EXPECT_THAT(error("a/1.jpg,x\n"), HasSubstr("line 1 names no columns"));
  EXPECT_THAT(error("path,x\na/1.jpg,x\n"), HasSubstr("line 1 names no column label"));
  EXPECT_THAT(error("a/1.jpg\n"), HasSubstr("line 1: 'a/1.jpg' is not a path and a label"));
  EXPECT_THAT(error(""), HasSubstr("is empty"));
  EXPECT_THAT(error(head), HasSubstr("has no image"));
  EXPECT_THAT(error_of(ExitCode::data, [] { read_labels("/nowhere/list.csv", "data", "", 1); }),
              HasSubstr("/nowhere/list.csv"));
}

TEST_F(Labels, APipeIsNotOpened) {
  ASSERT_EQ(mkfifo((root() / "pipe.jpg").c_str(), 0600), 0);
  const LabelList list = read("path,label\na/1.jpg,x\npipe.jpg,x\n");
  ASSERT_EQ(list.listing.train.special.size(), 1U);
  EXPECT_EQ(list.listing.train.special[0].kind, "a named pipe");
}

}  // namespace
}  // namespace ddp
